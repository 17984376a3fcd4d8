"""The end of a conversation: the view stays there while content loads late, until the user scrolls."""

from __future__ import annotations

import base64
import threading

import pytest
from playwright.sync_api import expect

import recollect

from page_helpers import until  # isort: skip
from test_page_conversation import png, send, start_conversation, wait_for_answer  # isort: skip

SIZES = {"desktop": (1280, 800), "phone": (390, 800)}
UNKNOWN = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()  # a picture without a size in its header

# The order of events that once lost the end: a picture loads and grows, a scroll event, and then the resize observer.
RACE = """
document.addEventListener("load", (event) => {
  const scroll = document.getElementById("scroll");
  if (event.target.tagName !== "IMG" || !scroll?.contains(event.target)) return;
  window.pictures = (window.pictures || 0) + 1;
  scroll.dispatchEvent(new Event("scroll"));
}, true);
"""
# The distance of the view from the end, in pixels.
DISTANCE = """() => { const { scroll } = recollect.view();
    return Math.round(scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight); }"""
FRAMES = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"""


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


class LatePictures:
    """Pictures that the browser receives only when the test sends them."""

    def __init__(self, page, body=None):
        self._body = body or png(40, 300)
        self._routes = []
        self._lock = threading.Lock()
        page.route("**/files/**", self._hold)

    def _hold(self, route):
        with self._lock:
            self._routes.append(route)

    def send(self, page, count):
        """Wait for this many requests, and answer them."""
        until(lambda: page.wait_for_timeout(5) or len(self._routes) >= count)
        for route in self._routes:
            route.fulfill(body=self._body, content_type="image/png")
        self._routes.clear()


def session_with_pictures(store, title, count=4):
    """Create a long session that ends with pictures."""
    session = store.session(title=title)
    session.append(
        [
            message
            for n in range(20)
            for message in ({"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": f"a {n}\n\n" * 4})
        ]
    )
    pictures = [
        {"kind": "attachment", "mime_type": "image/png", "data": UNKNOWN, "name": f"{n}.png"} for n in range(count)
    ]
    session.append({"role": "user", "parts": [{"kind": "text", "text": "look"}, *pictures]}, format="recollect")
    session.append({"role": "assistant", "content": "I have looked."})
    return session


def add_race(page):
    page.context.add_init_script(RACE)
    page.evaluate(f"() => {{ {RACE} }}")


def distance_after_loading(page, pictures):
    """Wait until this many pictures are loaded and laid out; return the distance of the view from the end."""
    page.wait_for_function("(count) => window.pictures >= count", arg=pictures)
    page.evaluate(FRAMES)
    return page.evaluate(DISTANCE)


@pytest.mark.parametrize("size", SIZES)
def test_a_conversation_with_late_pictures_opens_at_its_end(open_scripted_page, store, size):
    width, height = SIZES[size]
    session = session_with_pictures(store, "Late pictures")
    page = open_scripted_page("/c/" + session.id, width=width, height=height)
    add_race(page)
    for _ in range(10):
        page.evaluate("() => recollect.startConversation({title: 'Between'}).then(() => { window.pictures = 0; })")
        late = LatePictures(page)
        page.evaluate("(id) => recollect.open(id)", session.id)
        late.send(page, 4)
        assert distance_after_loading(page, 4) <= 1
        assert page.evaluate("() => recollect.view().atEnd") is True
        page.unroute_all()


def test_a_loaded_page_with_late_pictures_shows_the_end(open_scripted_page, store, common_server):
    session = session_with_pictures(store, "Late pictures, loaded")
    page = open_scripted_page()
    add_race(page)
    for _ in range(4):
        late = LatePictures(page)
        page.goto(f"{common_server.url}/c/{session.id}", wait_until="commit")
        late.send(page, 4)
        assert distance_after_loading(page, 4) <= 1
        page.unroute_all()


@pytest.mark.parametrize("size", SIZES)
def test_the_view_stays_at_the_end_after_sending_pictures(open_scripted_page, common_server, store, size):
    width, height = SIZES[size]
    page = open_scripted_page(width=width, height=height)
    add_race(page)
    for number in range(5):
        session = start_conversation(page)
        store.session(session).append([{"role": "assistant", "content": "long\n\n" * 60}])
        expect(page.locator("#messages > .assistant")).to_have_count(1)
        page.evaluate("() => { window.pictures = 0; }")
        page.locator("#file").set_input_files(
            [
                {"name": f"{n}.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n" + bytes([n])}
                for n in range(5)
            ]
        )
        late = LatePictures(page)
        name = f"sent-{size}-{number}"
        send(page, f"hold {name}")
        expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
        late.send(page, 5)
        assert distance_after_loading(page, 5) <= 1
        common_server.create_file(name)
        wait_for_answer(page, "continues and ends here")
        page.evaluate(FRAMES)
        assert page.evaluate(DISTANCE) <= 1
        page.unroute_all()


def test_an_answer_does_not_move_a_view_that_was_scrolled_up(open_scripted_page, common_server, store):
    page = open_scripted_page()
    session = start_conversation(page)
    store.session(session).append([{"role": "assistant", "content": "long\n\n" * 80}])
    expect(page.locator("#messages > .assistant")).to_have_count(1)
    send(page, "hold wheel-1 wheel-2")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    page.locator("#scroll").hover()
    page.mouse.wheel(0, -400)
    page.wait_for_function("() => !recollect.view().atEnd")
    page.evaluate(FRAMES)
    before = page.evaluate("() => recollect.view().scroll.scrollTop")
    for name in ("wheel-1", "wheel-2"):
        common_server.create_file(name)
    wait_for_answer(page, "continues and ends here")
    assert abs(page.evaluate("() => recollect.view().scroll.scrollTop") - before) <= 1
    expect(page.locator("#below button")).to_be_visible()


def test_scrolling_up_while_the_content_grows_leaves_the_end(open_scripted_page, store):
    """Every frame of a stream changes the height; a gesture between two frames must still leave the end."""
    page = open_scripted_page("/c/" + session_with_pictures(store, "Growing", 0).id)
    for gesture in (
        "new WheelEvent('wheel', { deltaY: -200, bubbles: true })",
        "new Event('touchmove', { bubbles: true })",
    ):
        at_end = page.evaluate(
            """(gesture) => { const { scroll, list } = recollect.view(), block = document.createElement("p");
            recollect.actions["to-end"]();
            block.style.height = "300px"; list.append(block);
            scroll.dispatchEvent(eval(gesture));
            scroll.scrollTop -= 200;
            scroll.dispatchEvent(new Event("scroll"));
            block.remove();
            return recollect.view().atEnd; }""",
            gesture,
        )
        assert at_end is False


def test_content_that_shrinks_and_grows_in_one_frame_does_not_count_as_scrolling(open_scripted_page, store):
    page = open_scripted_page("/c/" + session_with_pictures(store, "Shrinking", 0).id)
    page.evaluate(
        """() => { const { scroll, list } = recollect.view(), block = document.createElement("p");
        block.style.height = "900px"; list.append(block); window.block = block; }"""
    )
    page.evaluate(FRAMES)
    page.evaluate(
        """() => { const { scroll } = recollect.view();
        block.style.height = "10px"; scroll.scrollTop;   /* forces the layout, and the view moves up */
        block.style.height = "700px";
        scroll.dispatchEvent(new Event("scroll")); }"""
    )
    page.evaluate(FRAMES)
    assert page.evaluate(DISTANCE) <= 1


def test_pictures_have_their_size_before_they_are_loaded(open_scripted_page, store):
    page = open_scripted_page()
    session = start_conversation(page)
    LatePictures(page)
    page.evaluate("""async () => {
        const canvas = Object.assign(document.createElement("canvas"), { width: 800, height: 640 });
        canvas.getContext("2d").fillRect(0, 0, 99, 99);
        const data = new DataTransfer();
        for (const kind of ["png", "jpeg", "webp"]) {
            const blob = await new Promise((done) => canvas.toBlob(done, "image/" + kind));
            data.items.add(new File([blob], "drawn." + kind, { type: "image/" + kind }));
        }
        document.getElementById("composer").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }""")
    expect(page.locator(".file-chip")).to_have_count(3)
    send(page, "echo size")
    wait_for_answer(page, "size")
    boxes = page.locator("#messages .user img").evaluate_all(
        "(images) => images.map((image) => [image.complete, image.clientWidth, image.clientHeight])"
    )
    assert boxes == [[False, 400, 320]] * 3
    assert store.get_session(session).message_count == 2
    page.unroute_all()

"""The end of a conversation: the view stays there whatever is loaded late, until somebody scrolls."""

from __future__ import annotations

import base64
import threading

import pytest
from playwright.sync_api import expect

import recollect

from around import until  # isort: skip
from test_page_talk import answered, fresh, png, said  # isort: skip

SIZES = {"desktop": (1280, 800), "phone": (390, 800)}
UNKNOWN = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()  # a picture whose size nobody can tell before it is loaded

# The order that lost the end: a picture is loaded and grows, a scroll event is handled, the resize observer comes last.
RACE = """
document.addEventListener("load", (event) => {
  const scroll = document.getElementById("scroll");
  if (event.target.tagName !== "IMG" || !scroll?.contains(event.target)) return;
  window.grown = (window.grown || 0) + 1;
  scroll.dispatchEvent(new Event("scroll"));
}, true);
"""
LEFT = """() => { const { scroll } = recollect.talk();
    return Math.round(scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight); }"""
FRAMES = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"""


@pytest.fixture
def store(common_server):
    with recollect.open(common_server.path) as store:
        yield store


class LatePictures:
    """Pictures that are loaded when the test says so."""

    def __init__(self, page, body=None):
        self._body = body or png(40, 300)
        self._held = []
        self._lock = threading.Lock()
        page.route("**/files/**", self._hold)

    def _hold(self, route):
        with self._lock:
            self._held.append(route)

    def let(self, page, count):
        until(lambda: page.wait_for_timeout(5) or len(self._held) >= count)
        for route in self._held:
            route.fulfill(body=self._body, content_type="image/png")
        self._held.clear()


def with_pictures(store, title, count=4):
    session = store.create_session(title=title)
    session.append(
        [
            m
            for n in range(20)
            for m in ({"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": f"a {n}\n\n" * 4})
        ]
    )
    pictures = [
        {"kind": "attachment", "mime_type": "image/png", "data": UNKNOWN, "name": f"{n}.png"} for n in range(count)
    ]
    session.append({"role": "user", "parts": [{"kind": "text", "text": "look"}, *pictures]}, format="recollect")
    session.append({"role": "assistant", "content": "I have looked."})
    return session


def race(page):
    page.context.add_init_script(RACE)
    page.evaluate(f"() => {{ {RACE} }}")


def ended(page, pictures):
    """Wait until these pictures have grown and all is laid out; return how far the end is from the view."""
    page.wait_for_function("(count) => window.grown >= count", arg=pictures)
    page.evaluate(FRAMES)
    return page.evaluate(LEFT)


@pytest.mark.parametrize("size", SIZES)
def test_a_conversation_opens_at_its_end_however_late_its_pictures_come(talk, store, size):
    width, height = SIZES[size]
    session = with_pictures(store, "Late pictures")
    page = talk("/c/" + session.id, width=width, height=height)
    race(page)
    for _ in range(10):
        page.evaluate("() => recollect.begin({title: 'Between'}).then(() => { window.grown = 0; })")
        late = LatePictures(page)
        page.evaluate("(id) => recollect.open(id)", session.id)
        late.let(page, 4)
        assert ended(page, 4) <= 1
        assert page.evaluate("() => recollect.talk().atEnd") is True
        page.unroute_all()


def test_a_page_that_is_loaded_shows_the_end_however_late_its_pictures_come(talk, store, common_server):
    session = with_pictures(store, "Late pictures, loaded")
    page = talk()
    race(page)
    for _ in range(4):
        late = LatePictures(page)
        page.goto(f"{common_server.url}/c/{session.id}", wait_until="commit")
        late.let(page, 4)
        assert ended(page, 4) <= 1
        page.unroute_all()


@pytest.mark.parametrize("size", SIZES)
def test_who_sends_pictures_sees_the_end_of_the_answer(talk, common_server, store, size):
    width, height = SIZES[size]
    page = talk(width=width, height=height)
    race(page)
    for number in range(5):
        session = fresh(page)
        store.session(session).append([{"role": "assistant", "content": "long\n\n" * 60}])
        expect(page.locator("#messages > .assistant")).to_have_count(1)
        page.evaluate("() => { window.grown = 0; }")
        page.locator("#file").set_input_files(
            [
                {"name": f"{n}.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n" + bytes([n])}
                for n in range(5)
            ]
        )
        late = LatePictures(page)
        name = f"sent-{size}-{number}"
        said(page, f"hold {name}")
        expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
        late.let(page, 5)
        assert ended(page, 5) <= 1
        common_server.let(name)
        answered(page, "goes on, and ends here")
        page.evaluate(FRAMES)
        assert page.evaluate(LEFT) <= 1
        page.unroute_all()


def test_who_scrolls_up_while_an_answer_comes_is_left_alone(talk, common_server, store):
    page = talk()
    session = fresh(page)
    store.session(session).append([{"role": "assistant", "content": "long\n\n" * 80}])
    expect(page.locator("#messages > .assistant")).to_have_count(1)
    said(page, "hold wheel-1 wheel-2")
    expect(page.locator("#messages > .live")).to_contain_text("The open paragraph")
    page.locator("#scroll").hover()
    page.mouse.wheel(0, -400)
    page.wait_for_function("() => !recollect.talk().atEnd")
    page.evaluate(FRAMES)
    before = page.evaluate("() => recollect.talk().scroll.scrollTop")
    for name in ("wheel-1", "wheel-2"):
        common_server.let(name)
    answered(page, "goes on, and ends here")
    assert abs(page.evaluate("() => recollect.talk().scroll.scrollTop") - before) <= 1
    expect(page.locator("#below button")).to_be_visible()


def test_a_gesture_counts_also_while_the_content_grows(talk, store):
    """Every frame of a stream changes the height; who scrolls up between two of them has left the end."""
    page = talk("/c/" + with_pictures(store, "Growing", 0).id)
    for gesture in (
        "new WheelEvent('wheel', { deltaY: -200, bubbles: true })",
        "new Event('touchmove', { bubbles: true })",
    ):
        left = page.evaluate(
            """(gesture) => { const { scroll, list } = recollect.talk(), made = document.createElement("p");
            recollect.actions["to-end"]();
            made.style.height = "300px"; list.append(made);
            scroll.dispatchEvent(eval(gesture));
            scroll.scrollTop -= 200;
            scroll.dispatchEvent(new Event("scroll"));
            made.remove();
            return recollect.talk().atEnd; }""",
            gesture,
        )
        assert left is False


def test_what_shrinks_and_grows_in_one_frame_is_not_taken_for_scrolling(talk, store):
    page = talk("/c/" + with_pictures(store, "Shrinking", 0).id)
    page.evaluate(
        """() => { const { scroll, list } = recollect.talk(), made = document.createElement("p");
        made.style.height = "900px"; list.append(made); window.made = made; }"""
    )
    page.evaluate(FRAMES)
    page.evaluate(
        """() => { const { scroll } = recollect.talk();
        made.style.height = "10px"; scroll.scrollTop;   /* it is laid out, and the view moves up */
        made.style.height = "700px";
        scroll.dispatchEvent(new Event("scroll")); }"""
    )
    page.evaluate(FRAMES)
    assert page.evaluate(LEFT) <= 1


def test_pictures_have_their_room_before_they_are_loaded(talk, store):
    page = talk()
    session = fresh(page)
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
    said(page, "echo room")
    answered(page, "room")
    boxes = page.locator("#messages .user img").evaluate_all(
        "(images) => images.map((image) => [image.complete, image.clientWidth, image.clientHeight])"
    )
    assert boxes == [[False, 400, 320]] * 3
    assert store.get_session(session).message_count == 2
    page.unroute_all()

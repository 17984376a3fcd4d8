"""The pixel size of an image, from its first bytes."""

from __future__ import annotations

import base64
import struct

import pytest

from recollect.server import attachments
from recollect.server.attachments import ImageDimensions


def png(width, height):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\0\0\0"


def gif(width, height):
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def webp(kind, body):
    return b"RIFF\0\0\0\0WEBP" + kind + struct.pack("<I", len(body)) + body


def segment(marker, body):
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def exif(order, orientation):
    entries = [(0x010F, 2, 4, 0), (0x0112, 3, 1, orientation)]
    body = b"".join(struct.pack(order + "HHIHH", *entry, 0) for entry in entries)
    mark = b"II" if order == "<" else b"MM"
    return b"Exif\0\0" + mark + struct.pack(order + "HIH", 42, 8, len(entries)) + body


def jpeg(width, height, *before, marker=0xC0):
    size = segment(marker, struct.pack(">BHHB", 8, height, width, 3) + bytes(9))
    return b"\xff\xd8" + b"".join(before) + b"\xff" + size + segment(0xDA, bytes(10))


METADATA = segment(0xE0, b"JFIF\0" + bytes(9))
IMAGES = [
    png(640, 200),
    gif(640, 200),
    webp(b"VP8X", b"\0\0\0\0" + (639).to_bytes(3, "little") + (199).to_bytes(3, "little")),
    webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 199 << 14)),
    webp(b"VP8 ", bytes(6) + struct.pack("<HH", 640, 200)),
    jpeg(640, 200),
    jpeg(640, 200, METADATA, segment(0xC4, bytes(30)), segment(0xE2, bytes(60_000)), marker=0xC2),
    jpeg(640, 200, segment(0xE1, exif("<", 1)), segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0")),
]


@pytest.mark.parametrize("image", IMAGES)
def test_the_dimensions_are_read_from_the_first_bytes(image):
    assert attachments.read_image_dimensions(base64.b64encode(image).decode()) == ImageDimensions(640, 200)


@pytest.mark.parametrize("image", IMAGES)
def test_a_truncated_image_has_its_dimensions_or_none(image):
    for length in range(min(len(image), 200)):
        assert attachments.read_image_dimensions(base64.b64encode(image[:length]).decode()) in (
            None,
            ImageDimensions(640, 200),
        )


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"no image",
        png(0, 10),
        png(10, 1 << 20),
        webp(b"ALPH", bytes(40)),
        jpeg(640, 200, segment(0xE1, exif("<", 6))),
        jpeg(640, 200, segment(0xE1, exif(">", 8))),
        b"\xff\xd8" + segment(0xE0, bytes(9)) + segment(0xDA, bytes(10)),
        b"\xff\xd8\xff\xe0\0\0" + bytes(20),
    ],
)
def test_an_image_without_reliable_dimensions_has_none(image):
    assert attachments.read_image_dimensions(base64.b64encode(image).decode()) is None


def test_invalid_base64_has_no_dimensions():
    assert attachments.read_image_dimensions("a") is None


@pytest.mark.parametrize(
    ("size", "expected"), [((640, 200), (640, 200)), ((1600, 1200), (427, 320)), ((1, 60_000), (1, 320))]
)
def test_an_image_is_scaled_to_the_height_on_the_page(size, expected):
    assert ImageDimensions(*size).fit_to_page() == expected

"""Bytes of anybody raise what their readers expect, and nothing else; a bounded, seeded run."""

import random
from uuid import UUID

import pytest
from tests.fuzz.frames import REQUESTS, Frames
from tests.fuzz.targets import TARGETS

from plimsoll_wire.api_versions import SUPPORTED
from plimsoll_wire.headers import parse_request_header

INPUTS = 600


@pytest.mark.parametrize("name", TARGETS)
def test_noise_raises_nothing_unexpected(name):
    dice = random.Random(f"noise for {name}")
    for _ in range(INPUTS):
        TARGETS[name](dice.randbytes(dice.choice((1, 5, 20, 60, 300))))


@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_requests_raise_nothing_unexpected(name):
    frames = Frames(7, UUID(int=7))
    for _ in range(INPUTS):
        TARGETS[name](frames.frame())
        TARGETS[name](frames.control_frame()[4:])


def test_generated_frames_cover_every_api_and_version():
    frames = Frames(3, UUID(int=3))
    for key, version in REQUESTS:
        header = parse_request_header(bytearray(frames.request(key, version)[4:]))
        assert (header.api_key, header.api_version) == (key, version)
    assert {key for key, _ in REQUESTS} == set(SUPPORTED)


def test_frame_generator_is_deterministic_per_seed():
    one, same = Frames(5, UUID(int=5)), Frames(5, UUID(int=5))
    assert [one.frame() for _ in range(50)] == [same.frame() for _ in range(50)]

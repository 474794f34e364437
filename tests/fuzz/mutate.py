"""Mutations of recorded bytes, drawn from one random generator: same seed, same input."""

from __future__ import annotations

from random import Random

# Lengths, counts and offsets at the edges of their types.
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
VARINTS = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80\x01",
    b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x07",
    b"\xff" * 10,
)
CHANGES_MAX = 6
PIECES_MAX = 100  # about; a long stream byte by byte is slow and finds no more


def mutated(data: bytes, other: bytes, random: Random) -> bytes:
    """`data` with one to six changes; `other` is another recorded piece, to take bytes from."""
    changed = bytearray(data)
    for _ in range(random.randint(1, CHANGES_MAX)):
        _change(changed, other, random)
    return bytes(changed)


def _change(data: bytearray, other: bytes, random: Random) -> None:
    at = random.randint(0, len(data))
    size = random.randint(1, 1 << random.randint(0, 6))
    match random.randrange(9):
        case 0 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 1:
            width = random.choice((1, 2, 4, 8))
            number = random.choice(NUMBERS) & ((1 << 8 * width) - 1)
            data[at : at + width] = number.to_bytes(width, "big")
        case 2:
            varint = random.choice(VARINTS)
            data[at : at + random.choice((1, len(varint)))] = varint
        case 3:
            del data[at : at + size]
        case 4:
            data[at:at] = random.randbytes(size)
        case 5:
            data[at:at] = data[at : at + size] * random.randint(1, 8)
        case 6:
            start = random.randint(0, len(other))
            data[at : at + random.choice((0, size))] = other[start : start + size]
        case 7:
            del data[at:]
        case _:
            data[at : at + size] = random.randbytes(size)


def chunks(stream: bytes, random: Random) -> list[bytes]:
    """The stream as a socket may deliver it: whole, in pieces, or byte by byte."""
    if random.random() < 0.3:
        return [stream]
    longest = random.choice((1, 3, 7, 100, 1_500, 65_536))
    longest = max(longest, len(stream) // PIECES_MAX)
    pieces = []
    at = 0
    while at < len(stream):
        size = random.randint(1, longest)
        pieces.append(stream[at : at + size])
        at += size
    return pieces


def framed(payload: bytes, random: Random) -> bytes:
    """With a size prefix; one in ten does not tell the truth."""
    size = len(payload)
    if random.random() < 0.1:
        size = random.choice((*NUMBERS, size + 1, max(0, size - 1)))
    return (size & 0xFFFF_FFFF).to_bytes(4, "big") + payload

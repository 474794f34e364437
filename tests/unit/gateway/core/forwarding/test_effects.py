"""How the bytes of one read are cut into those that pass and those that do not."""

from __future__ import annotations

from gateway.core.forwarding.effects import Chunk, Effect, Side, ToClient, ToUpstream


def test_a_chunk_that_passes_whole_is_not_copied() -> None:
    data = b"abcdef"
    effects: list[Effect] = []
    chunk = Chunk(data, effects, side=Side.CLIENT)
    chunk.at = chunk.end
    chunk.flush()
    chunk.flush()
    assert effects == [ToUpstream(data)]
    assert isinstance(effects[0], ToUpstream)
    assert effects[0].data is data


def test_what_is_taken_does_not_pass() -> None:
    effects: list[Effect] = []
    chunk = Chunk(b"abcdef", effects, side=Side.UPSTREAM)
    chunk.at = 2
    assert bytes(chunk.take(2)) == b"cd"
    chunk.at += 1
    assert chunk.rest() == b"f"
    chunk.flush()
    assert effects == [ToClient(b"ab"), ToClient(b"e")]
    assert chunk.at == chunk.end


def test_nothing_is_no_effect() -> None:
    effects: list[Effect] = []
    chunk = Chunk(b"ab", effects, side=Side.UPSTREAM)
    chunk.flush()
    assert bytes(chunk.take(2)) == b"ab"
    assert effects == []

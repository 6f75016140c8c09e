"""However a runner cuts, repeats or misplaces its chunks, the stored log is a prefix of what it sent."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vole.base.ids import Epoch, JobKey, RepoName, RunNumber
from vole.evidence.logs import LogKey, LogStore, WrongOffset

KEY = LogKey(RepoName("app"), RunNumber(1), JobKey("test"), Epoch(1))


@settings(max_examples=200)
@given(
    st.binary(max_size=64),
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 20), st.booleans()), max_size=20),
)
@pytest.mark.proves("I-33")
def test_the_stored_log_is_a_prefix_of_what_was_sent(sent, deeds):
    with tempfile.TemporaryDirectory() as folder:
        logs = LogStore(Path(folder))
        length = 0
        for offset, size, restarted in deeds:
            if restarted:
                logs.close()
                logs = LogStore(Path(folder))
            if offset == length:
                length = logs.append_at(KEY, offset, sent[offset : offset + size])
                continue
            with pytest.raises(WrongOffset) as refused:
                logs.append_at(KEY, offset, sent[offset : offset + size])
            assert refused.value.offset == length
        while length < len(sent):
            length = logs.append_at(KEY, length, sent[length : length + 7])

        assert logs.read(KEY, 0, 999) == sent
        assert logs.seal(KEY).sha256 == hashlib.sha256(sent).hexdigest()
        logs.close()

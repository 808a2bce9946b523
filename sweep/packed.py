"""Many records in little memory: packed when they come, unpacked one at a time when read."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from sweep.record import Record
from sweep.store import dump_record, parse_record


class PackedRecords(Sequence[Record]):
    """A growing sequence of records, each held as the compressed bytes of its file.

    As Python objects a record takes some 100 kB, packed 6 kB; what comes out equals what went in.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._packed: list[bytes] = []
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        """Packs a record at the end. RecordError when it holds a number that is not finite."""
        self._packed.append(zlib.compress(dump_record(record), 1))

    def __len__(self) -> int:
        return len(self._packed)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [_unpack(packed) for packed in self._packed[index]]
        return _unpack(self._packed[index])

    def __iter__(self) -> Iterator[Record]:
        return map(_unpack, self._packed)


def _unpack(packed: bytes) -> Record:
    return parse_record(zlib.decompress(packed))

"""What an address asks for: the values behind its question mark, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlencode

from ray_snapshot.errors import SettingError

ROWS = 50
MOST_ROWS = 1_000
"""So many rows a page may have."""
LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Asked:
    """The values of an address; raises `SettingError` for those that are none."""

    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """A text; None if it is not given, or empty."""
        value = self.values.get(name, "").strip()
        if len(value) > LONGEST:
            raise SettingError(f"{name}: a text of {len(value):,} characters is too long to look for")
        return value or None

    def number(self, name: str, otherwise: int, least: int, most: int) -> int:
        """A whole number."""
        value = self.text(name)
        if value is None:
            return otherwise
        if not (value.isascii() and value.isdigit() and len(value) < 16 and least <= int(value) <= most):
            raise SettingError(f"{name}={value[:40]!r}: say a whole number from {least} to {most:,}")
        return int(value)

    def moment(self, name: str) -> datetime | None:
        """A moment, in ISO 8601; UTC unless it says otherwise."""
        value = self.text(name)
        if value is None:
            return None
        try:
            found = datetime.fromisoformat(value)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            raise SettingError(f"{name}={value[:40]!r}: say a time like 2026-11-24T10:30:00 (UTC)") from None

    def one_of(self, name: str, known: Mapping[str, object] | tuple[str, ...], otherwise: str) -> str:
        """One of a few words."""
        value = self.text(name)
        if value is None:
            return otherwise
        if value not in known:
            raise SettingError(f"{name}={value[:40]!r}: say one of {', '.join(known)}")
        return value

    @property
    def page(self) -> int:
        """Which page of rows, from 1."""
        return self.number("page", 1, 1, 10_000_000)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.number("rows", ROWS, 1, MOST_ROWS)

    def with_(self, **changed: str | int | None) -> str:
        """The same question with some values changed, as it stands behind an address; None: without it."""
        values = {**self.values, **{name: value for name, value in changed.items() if value is not None}}
        kept = {name: str(value) for name, value in values.items() if changed.get(name, value) is not None and value}
        return f"?{urlencode(kept)}" if kept else "?"


@dataclass(frozen=True, slots=True)
class Part:
    """Which rows of how many a page shows."""

    page: int
    pages: int
    rows: int
    total: int

    @classmethod
    def of(cls, asked: Asked, total: int) -> Part:
        """The part that was asked for; the last one where there are fewer."""
        pages = max(1, -(-total // asked.rows))
        return cls(min(asked.page, pages), pages, asked.rows, total)

    @property
    def begin(self) -> int:
        """The place of its first row."""
        return (self.page - 1) * self.rows

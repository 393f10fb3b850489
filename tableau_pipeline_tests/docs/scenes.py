"""The changes of models in the scenes of ship-changes.md and scenes.md, refresh by refresh."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from tableau_pipeline.core.snapshot import Span

TODAY = date(2026, 3, 20)
_ZONE = "Europe/Paris"


@dataclass(frozen=True)
class Part:
    """A partition of a model, or a whole model."""

    rows: pa.Table
    partition: str | None = None
    span: Span | None = None


@dataclass(frozen=True)
class Step:
    """The changes before a refresh: for each model, the whole model or some partitions."""

    models: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    today: date = TODAY


Scene = Callable[[], Iterator[Step]]


def append() -> Iterator[Step]:
    readings = [(meter, _day(n), 1.5) for n in range(20) for meter in range(1_000)]
    yield _step(readings=_readings(readings))
    readings += [(meter, _day(20), 1.5) for meter in range(1_000)]
    yield _step(readings=_readings(readings))
    readings += [(meter, _day(18), 1.5) for meter in range(2_000, 2_005)]
    yield _step(readings=_readings(readings))
    readings[0] = (0, _day(0), 9.9)
    yield _step(readings=_readings(readings))
    yield Step()


def several_tables() -> Iterator[Step]:
    yield _step(invoices=_invoices(10_000), invoice_lines=_lines(30_000))
    yield _step(invoices=_invoices(10_200), invoice_lines=_lines(30_600))
    yield _step(invoice_lines=_lines(30_603))


def star() -> Iterator[Step]:
    yield _step(sales=_sales(100), shops=_named("shop_id", 40), products=_named("product_id", 50))
    yield _step(sales=_sales(101))
    yield _step(sales=_sales(102), products=_named("product_id", 50, renamed=7))
    yield _step(sales=_sales(102), shops=_named("shop_id", 40))


def snowflake() -> Iterator[Step]:
    yield _step(
        deliveries=_deliveries(20_000), customers=_customers(2_000), regions=_named("region_id", 12)
    )
    yield _step(deliveries=_deliveries(20_500), customers=_customers(2_030))
    yield _step(regions=_named("region_id", 12, renamed=3))
    yield _step(customers=_customers(2_030, moved=17))


def rolling_window() -> Iterator[Step]:
    first = TODAY - timedelta(days=119)
    visits: list[tuple] = [(n, first + timedelta(days=n // 100), "/") for n in range(12_000)]
    visits += [(50_000 + n, None, "/") for n in range(3)]
    yield _step(visits=_visits(visits))
    tomorrow = TODAY + timedelta(days=1)
    visits += [(12_000 + n, tomorrow, "/") for n in range(100)]
    yield _step(tomorrow, visits=_visits(visits))
    yield Step(today=TODAY + timedelta(days=2))
    visits[0] = (0, first, "/about")
    yield _step(TODAY + timedelta(days=2), visits=_visits(visits))


def change_data_capture() -> Iterator[Step]:
    balances = {n: 10 * n for n in range(10_000)}
    yield _step(accounts=_accounts(balances), account_changes=_changes())
    balances |= dict.fromkeys(range(100, 120), 5) | dict.fromkeys(range(10000, 10010), 0)
    for closed in range(200, 205):
        del balances[closed]
    changes = _changes(update=range(100, 120), insert=range(10_000, 10_010), delete=range(200, 205))
    yield _step(accounts=_accounts(balances), account_changes=changes)
    balances |= dict.fromkeys(range(300, 304), 7)
    yield _step(accounts=_accounts(balances), account_changes=_changes(update=range(300, 340)))
    balances |= dict.fromkeys(range(400, 406), 8)
    yield _step(accounts=_accounts(balances), account_changes=_changes(update=range(400, 402)))


def partitions() -> Iterator[Step]:
    yield Step({"events": [_events(n) for n in range(30)]})
    yield Step({"events": [_events(30)]})
    yield Step({"events": [_events(27, rows=490), _events(28, rows=505)]})
    yield Step({"events": [_events(n) for n in range(5)]})


SCENES: Mapping[str, Scene] = {
    "Append": append,
    "Several tables": several_tables,
    "Star": star,
    "Snowflake": snowflake,
    "Rolling window": rolling_window,
    "Change data capture": change_data_capture,
    "Partitions": partitions,
}


def _step(today: date = TODAY, **models: pa.Table) -> Step:
    return Step({model: [Part(rows)] for model, rows in models.items()}, today)


def _table(rows: Sequence[tuple], **types: pa.DataType) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    return pa.table(
        {
            name: pa.array(values, type_)
            for (name, type_), values in zip(types.items(), columns, strict=True)
        }
    )


def _day(number: int) -> date:
    return TODAY - timedelta(days=100 - number)


def _readings(rows: Sequence[tuple]) -> pa.Table:
    return _table(rows, meter_id=pa.int64(), read_on=pa.date32(), kwh=pa.float64())


def _invoices(count: int) -> pa.Table:
    rows = [(n, f"C{n % 700}") for n in range(count)]
    return _table(rows, invoice_id=pa.int64(), customer=pa.string())


def _lines(count: int) -> pa.Table:
    rows = [(n, n // 3 % 10_000, 2.5 * n) for n in range(count)]
    return _table(rows, line_id=pa.int64(), invoice_id=pa.int64(), amount=pa.float64())


def _sales(days: int) -> pa.Table:
    rows = [(_day(n // 200), n % 40, n % 50, 1.5 * n) for n in range(days * 200)]
    return _table(
        rows, sold_on=pa.date32(), shop_id=pa.int64(), product_id=pa.int64(), amount=pa.float64()
    )


def _named(key: str, count: int, renamed: int | None = None) -> pa.Table:
    rows = [(n, "renamed" if n == renamed else f"{key} {n}") for n in range(count)]
    return _table(rows, **{key: pa.int64()}, name=pa.string())


def _deliveries(count: int) -> pa.Table:
    rows = [(n, n % 2_000, 1.5 * n) for n in range(count)]
    return _table(rows, delivery_id=pa.int64(), customer_id=pa.int64(), weight=pa.float64())


def _customers(count: int, moved: int | None = None) -> pa.Table:
    rows = [(n, 11 if n == moved else n % 12) for n in range(count)]
    return _table(rows, customer_id=pa.int64(), region_id=pa.int64())


def _visits(rows: Sequence[tuple]) -> pa.Table:
    return _table(rows, visit_id=pa.int64(), day=pa.date32(), page=pa.string())


def _accounts(balances: Mapping[int, int]) -> pa.Table:
    rows = [(n, f"owner {n}", 1.0 * balance) for n, balance in balances.items()]
    return _table(rows, account_id=pa.int64(), owner=pa.string(), balance=pa.float64())


def _changes(**keys: range) -> pa.Table:
    rows = [(n, operation) for operation, numbers in keys.items() for n in numbers]
    return _table(rows, id=pa.int64(), op=pa.string())


def _events(number: int, *, rows: int = 500) -> Part:
    day = _day(number)
    values: list[Any] = [(day, n, f"event {n}") for n in range(rows)]
    midnights = [
        datetime.combine(each, time(), ZoneInfo(_ZONE)).astimezone(UTC)
        for each in (day, day + timedelta(days=1))
    ]
    return Part(
        rows=_table(values, day=pa.date32(), event_id=pa.int64(), kind=pa.string()),
        partition=str(day),
        span=Span(start=midnights[0], end=midnights[1], zone=_ZONE),
    )

"""The answer of `queue replay`: the queue decided again, or with one more runner."""

from __future__ import annotations

from vole.base import clock, labels
from vole.base.clock import Moment
from vole.base.errors import Conflict, Invalid
from vole.flows.replay import Forecast, Replayed, Replays
from vole.ssh.answers.counter import Counter, when

_SHOWN = 20  # grants that came out otherwise


async def replay(at: Counter) -> None:
    since, until = _moment(at, "--from", Moment(0)), _moment(at, "--to", Moment(2**62))
    if since >= until:
        raise Invalid("--from is not before --to")
    replays = Replays(at.desk.db)
    added = at.call.get("--add-runner")
    if added is None:
        await _say_again(at, replays, await replays.unchanged(since, until))
    else:
        carried = labels.parse_all(word for word in added.split(",") if word)
        await _say_forecast(at, await replays.with_runner(carried, since, until))


def _moment(at: Counter, flag: str, otherwise: Moment) -> Moment:
    text = at.call.get(flag)
    return otherwise if text is None else clock.moment(text)


async def _say_again(at: Counter, replays: Replays, done: Replayed) -> None:
    shown = done.different[:_SHOWN]
    jobs = await replays.addresses([job for one in shown for job in (one.was, one.job) if job is not None])
    rows = [(when(one.at), one.runner, jobs[one.was], jobs[one.job] if one.job else "nothing") for one in shown]
    if at.call.json:
        counts = {"decisions": done.decisions, "different": len(done.different), "unknown": done.unknown}
        named = [dict(zip(("at", "runner", "was", "now"), row, strict=True)) for row in rows]
        await at.json({**counts, "differences": named})
    else:
        await at.say(f"{done.decisions} grants decided again, {len(done.different)} of them otherwise")
        if done.unknown:
            await at.say(f"{done.unknown} grants left out: the log of the fleet began after their runners had come")
        if rows:
            await at.table(("at", "runner", "was given", "now"), rows, empty="")
    if done.different:
        raise Conflict("the log does not decide as the queue did", next_step="report it, with the lines above")


async def _say_forecast(at: Counter, told: Forecast) -> None:
    rows: list[tuple[str | int, ...]] = [
        (" ".join(one.labels) or "any runner", one.jobs, *(f"{wait:.1f}" for wait in (*one.before, *one.after)))
        for one in told.waits
    ]
    columns = ("labels", "jobs", "p50 was s", "p95 was s", "p50 then s", "p95 then s")
    if at.call.json:
        counts = {"jobs": told.jobs, "moved": told.moved, "added": told.added, "guessed": told.guessed}
        await at.json({**counts, "waits": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    await at.table(columns, rows, empty="no job waited in that time")
    await at.say(f"of {told.jobs} jobs {told.moved} would have run elsewhere, {told.added} on the added runner")
    if told.guessed:
        await at.say(f"{told.guessed} jobs never ran: they count as long as the median of jobs like them")

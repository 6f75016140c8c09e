"""vole.yaml: its defaults, its problems, its reload."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from vole.base import limits
from vole.base.errors import Invalid, NotFound
from vole.config import reading, server
from vole.config.reading import Listen
from vole.config.server import Config, Paths, Tls


def config_of(text: str) -> Config:
    return server.build(reading.parse(text, "vole.yaml"), Paths(Path("/srv/vole")))


def keys_in(text: str) -> set[str]:
    """Every setting that `text` shows, as full paths."""
    keys: set[str] = set()
    section = ""
    for line in text.splitlines():
        found = re.fullmatch(r"( *)([a-z_]+):(.*)", line)
        if found and not found[1]:
            section = "" if found[3].strip() else found[2] + "."
            keys |= {found[2]} if found[3].strip() else set()
        elif found:
            keys.add(section + found[2])
    return keys


def test_the_file_of_init_says_the_defaults_and_every_key() -> None:
    root = reading.parse(server.template(), "vole.yaml")

    config = server.build(root, Paths(Path("/srv/vole")))

    assert config == config_of("")
    assert keys_in(server.template()) == {path.removesuffix(".cert").removesuffix(".key") for path in root.asked}


def test_every_value_reaches_its_setting() -> None:
    config = config_of(
        "url: https://forge.example/\n"
        "ssh: {listen: '[::]:22', url: 'ssh://git@forge.example'}\n"
        "web: {listen: '127.0.0.1:0', tls: {cert: c.pem, key: /etc/k.pem}, trusted_proxies: [10.0.0.0/8, '::1']}\n"
        "queue: {lease_ttl: 6s, queue_timeout: 0s, max_jobs_per_repo: 4}\n"
        "metrics: {listen: '127.0.0.1:9464'}\n"
        "retention: {rerun: 1d, logs: 7d, logs_size: 10GiB, runs: 365d}\n"
    )

    assert config.metrics.listen == Listen("127.0.0.1", 9464)
    assert config_of("").metrics.listen is None
    assert config.url == "https://forge.example"
    assert config.ssh == server.SshConfig(Listen("::", 22), "ssh://git@forge.example")
    assert config.web.tls == Tls(Path("/srv/vole/c.pem"), Path("/etc/k.pem"))
    assert config.web.trusted_proxies == ("10.0.0.0/8", "::1")
    assert config.queue == server.QueueConfig(6.0, 0.0, 4)
    assert config.retention == server.RetentionConfig(86400.0, 604800.0, 10 * limits.GIB, 31536000.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("queue: {lease_ttl: 5s}", "queue.lease_ttl: '5s' is outside 6s to 600s"),
        ("queue: {lease_ttl: 60}", "queue.lease_ttl: '60' has no unit"),
        ("queue: {max_jobs_per_repo: 0}", "queue.max_jobs_per_repo: '0' is no number of jobs"),
        ("url: https://forge.example/vole", "url: 'https://forge.example/vole' is no address of pages"),
        ("ssh: {url: forge.example}", "ssh.url: 'forge.example' is no address to clone from"),
        ("web: {tls: {cert: c.pem}}", "web.tls: needs both"),
        ("web: {trusted_proxies: [proxy]}", "web.trusted_proxies: 'proxy' is neither an address nor a network"),
        ("nodewire: {listen: x}", "nodewire: no such setting"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(text: str, sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        config_of(text)

    assert len(caught.value.problems) == 1
    assert sentence in caught.value.problems[0]


def test_a_reload_takes_what_it_may_and_names_what_needs_a_restart() -> None:
    running = config_of("")
    read = config_of(
        "url: https://a.example\nssh: {listen: 'h:1', url: 'ssh://git@a'}\n"
        "web: {listen: 'h:2', tls: {cert: c, key: k}, trusted_proxies: [10.0.0.1]}\n"
        "queue: {lease_ttl: 9s, queue_timeout: 1h, max_jobs_per_repo: 7}\n"
        "retention: {rerun: 1d}\nmetrics: {listen: 'h:3'}\n"
    )

    merged, restart = server.reloaded(running, read)

    assert (merged.queue.max_jobs_per_repo, merged.retention) == (7, read.retention)
    assert dataclasses.replace(merged, queue=running.queue, retention=running.retention) == running
    assert restart == (
        "url", "ssh.listen", "ssh.url", "web.listen", "web.tls",
        "web.trusted_proxies", "queue.lease_ttl", "queue.queue_timeout", "metrics.listen",
    )  # fmt: skip
    assert server.reloaded(running, running) == (running, ())


def test_a_folder_without_settings_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        server.load(tmp_path)

    assert "vole init" in caught.value.lines[1]

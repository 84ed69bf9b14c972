"""Commands of scenarios for faults: of processes, disks, links, messages, operators and their API
server.
"""

from __future__ import annotations

from pathlib import Path

from plimsoll_sim.cluster.lost_disk_content import change_disk, cut_power, image_of
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment.simulated_disk import FileNode, Folder
from plimsoll_sim.faults.api_server import confirm_history, go_back, lose_log
from plimsoll_sim.hosts.brokers import DATA, BrokerHost
from plimsoll_sim.scenario.cluster_verbs import Verb
from plimsoll_sim.scenario.fixed_randomness import ALL, Chosen
from plimsoll_sim.scenario.held_messages import HeldMessage
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.stage import Stage

SLOW_IO_US = (3_000_000, 3_000_001)
KEPT = {"log": "metadatabatches", "snapshots": "metadatasnapshots"}


def _brokers(stage: Stage, words: Words) -> list[BrokerHost]:
    found = [stage.broker(name) for name in words.rest("brokers")]
    words.end()
    return found


# --- processes ------------------------------------------------------------------------------------


def kill(stage: Stage, words: Words) -> None:
    """kill 2: send SIGKILL to broker 2. Written data stays in the page cache; the kernel closes the
    connections."""
    for host in _brokers(stage, words):
        host.kill()


def power(stage: Stage, words: Words) -> list[str]:
    """power 2 keep=none entries=none: cut the power of broker 2's machine. Of each file the synced
    part survives, and of the rest `none`, `all` or this many bytes; of each directory's changes
    since its last sync the first this many survive (without `entries`: all if anything of the files
    is kept). `back=10.log`: changes of names survive in any order, and none for names that end so.
    `zeros=20`: the last 20 surviving bytes are zeros. `uncut`: unsynced truncations are undone.
    Peers are not notified: their connections stay silent."""
    uncut = words.flag("uncut")
    content = _amount(words.option("keep", "none"))
    entries = _amount(words.option("entries", "all" if content else "none"))
    zeros, back = whole(words.option("zeros", "0")), words.option("back", "")
    told: list[str] = []
    for host in _brokers(stage, words):
        cut = Chosen(content=content, entries=entries, zeros=zeros, uncut=uncut, back=back)
        lost = cut_power(stage.world, host, cut)
        names = ", ".join(map(str, lost))
        told.append(f"{host.id}: data of {names} is lost" if lost else f"{host.id}: nothing lost")
    return told


def _amount(text: str) -> int:
    named = {"none": 0, "all": ALL}
    return named[text] if text in named else whole(text)


def write_back(stage: Stage, words: Words) -> None:
    """write-back 2: the kernel writes all data of broker 2 to the disk; `file=15.log`: only the
    content of the files of orders-0 (or `of=`) with names that end so."""
    name, at = words.option("file", ""), stage.at(words.option("of", ""))
    for host in _brokers(stage, words):
        if not name:
            host.volume.write_back()
            continue
        for _, node in host.volume.nodes(Path(DATA) / f"{at}", name):
            node.sync()


def stop(stage: Stage, words: Words) -> None:
    """stop 2: send SIGTERM to broker 2, and wait until it has stopped (`nowait`: do not wait)."""
    nowait = words.flag("nowait")
    hosts = _brokers(stage, words)
    for host in hosts:
        host.stop()
    if not nowait:
        stage.until(lambda: not any(host.running for host in hosts), "they have stopped")


def start(stage: Stage, words: Words) -> None:
    """start 2: start broker 2, and wait until it is unfenced (`nowait`: do not wait)."""
    nowait = words.flag("nowait")
    hosts = _brokers(stage, words)
    for host in hosts:
        if host.running:
            raise BadScript(f"broker {host.id} runs")
        stage.world.start_broker(host)
    if not nowait:
        stage.until(
            lambda: all(stage.takes_part(host) for host in hosts),
            f"brokers {', '.join(str(host.id) for host in hosts)} take part",
        )


def _process(host: BrokerHost) -> Process:
    if host.process is None or not host.running:
        raise BadScript(f"broker {host.id} does not run")
    return host.process


def pause(stage: Stage, words: Words) -> None:
    """pause 2: send SIGSTOP to broker 2; its sockets stay open."""
    for host in _brokers(stage, words):
        _process(host).pause()


def resume(stage: Stage, words: Words) -> None:
    """resume 2: send SIGCONT to broker 2."""
    for host in _brokers(stage, words):
        _process(host).resume()


def disk(stage: Stage, words: Words) -> None:
    """disk 2 full | exhausted | slow | ok | backup | empty | restore: broker 2's disk is full; no
    file can be opened for lack of descriptors; operations in threads take 3 s; the disk is as usual
    again; the disk's content is copied. With `empty` and `restore` the broker is killed, and its
    next process finds an empty disk, or the copy."""
    host = stage.broker(words.take("a broker"))
    what = words.take("what becomes of it")
    words.end()
    match what:
        case "full":
            host.volume.full = True
        case "exhausted":
            host.volume.no_descriptors = 1.0
        case "slow":
            stage.world.loop.slow_io[host.name] = SLOW_IO_US
        case "ok":
            host.volume.full, host.volume.no_descriptors = False, 0.0
            stage.world.loop.slow_io.pop(host.name, None)
        case "backup":
            stage.backups[host.id] = image_of(host)
        case "empty":
            change_disk(stage.world, host, None)
        case "restore":
            if host.id not in stage.backups:
                raise BadScript(f"there is no backup of broker {host.id}'s disk")
            change_disk(stage.world, host, stage.backups[host.id])
        case _:
            raise BadScript(f"cannot make a disk {what}")


def busy(stage: Stage, words: Words) -> None:
    """busy 50%: at this share of its readings of the clock, long work in an event loop has used the
    time of a slice, and events that have come due run before it continues."""
    share = words.take("a share")
    words.end()
    if not share.endswith("%"):
        raise BadScript(f"a share is as 50%: {share}")
    stage.world.loop.slices_end = whole(share[:-1]) / 100


def shorten(stage: Stage, words: Words) -> None:
    """shorten 2 file=00.log size=0: cut files of broker 2, which must not run: those of orders-0
    (or `of=`) with names that end so get this size, even if more was synced; with `gone` they are
    deleted."""
    host, gone = stage.broker(words.take("a broker")), words.flag("gone")
    suffix, size = words.option("file", ".log"), words.number("size", 0)
    at = stage.at(words.option("of", ""))
    words.end()
    folder = host.volume.find(Path(DATA) / f"{at}")
    if host.running or not isinstance(folder, Folder):
        raise BadScript(f"broker {host.id} runs, or has no {at}")
    for name in [each for each in folder.entries if each.endswith(suffix)]:
        if gone:
            del folder.entries[name]
        elif isinstance(node := folder.entries[name], FileNode):
            del node.data[size:]
            node.sync()
    stage.world.ghost.lossy(host.id, [at])


def crash(stage: Stage, words: Words) -> None:
    """crash 2 writes=3: kill broker 2's process during a write, sync, rename or removal of a file,
    after three more of these."""
    host, writes = stage.broker(words.take("a broker")), words.number("writes", 0)
    words.end()
    host.volume.crash_in = writes


def clock(stage: Stage, words: Words) -> None:
    """clock 2 3600s: the wall clock of broker 2's process is wrong by this much from now on; -3600s
    sets it back."""
    host = stage.broker(words.take("a broker"))
    text = words.take("how much")
    ahead_us = microseconds(text.removeprefix("-"))
    words.end()
    ahead_ms = ahead_us // 1_000
    _process(host).wall_offset_ms = -ahead_ms if text.startswith("-") else ahead_ms


# --- links and messages ---------------------------------------------------------------------------


def _links(stage: Stage, words: Words) -> list[tuple[str, str]]:
    one_way = words.flag("one-way")
    sources, targets = stage.hosts(words.take("from where")), stage.hosts(words.take("where to"))
    pairs = [(a, b) for a in sources for b in targets if a != b]
    return pairs if one_way else [*pairs, *((b, a) for a, b in pairs)]


def cut(stage: Stage, words: Words) -> None:
    """cut 1 2,controller: nothing passes between host 1 and the others, in both directions;
    `one-way`: only from the first to the others. Sent data waits, as TCP keeps it."""
    for pair in _links(stage, words):
        stage.world.network.cut(*pair)
    words.end()


def heal(stage: Stage, words: Words) -> None:
    """heal 1 2: repair the link; without names: repair all links and end all delays."""
    network = stage.world.network
    if not words.plain:
        network.heal_all()
    else:
        for pair in _links(stage, words):
            network.heal(*pair)
            network.slow.pop(pair, None)
    words.end()


def slow(stage: Stage, words: Words) -> None:
    """slow 1 2 300ms: everything between the two takes this much longer; `one-way`: only from the
    first to the second."""
    pairs = _links(stage, words)
    us = microseconds(words.take("how much"))
    words.end()
    for pair in pairs:
        stage.world.network.slow[pair] = us


def read_slowly(stage: Stage, words: Words) -> None:
    """read-slowly client 3s: peers of this host learn this much later that it has read from an
    existing connection; `0s` ends that."""
    hosts = stage.hosts(words.take("a host"))
    late_us = microseconds(words.take("how much"))
    words.end()
    for end in stage.world.network.sides(lambda source, _: source in hosts):
        end.reads_late_us = late_us


def _holds(stage: Stage, words: Words) -> list[HeldMessage]:
    kind = words.take("a kind of message")
    sources, targets = stage.hosts(words.take("from where")), stage.hosts(words.take("where to"))
    words.end()
    return [HeldMessage(kind, source, target) for source in sources for target in targets]


def hold(stage: Stage, words: Words) -> None:
    """hold Fetch 2 1: hold back such messages from 2 to 1, and what follows them on their
    connection. Kinds: Fetch, Produce, ... to brokers; Heartbeat, AlterPartition, Metadata, ... to
    `controller`; with -reply their answers: hold AlterPartition-reply controller 1."""
    for one in _holds(stage, words):
        stage.taps.hold(one)


def release(stage: Stage, words: Words) -> None:
    """release Fetch 2 1: end the hold and deliver the held messages; without words: all of them."""
    stage.taps.release(_holds(stage, words) if words.plain else stage.taps.holds)


def lose(stage: Stage, words: Words) -> None:
    """lose Fetch 2 1: end the hold without delivering the held messages: their connections
    break."""
    stage.taps.lose(_holds(stage, words) if words.plain else stage.taps.holds)


# --- operators ------------------------------------------------------------------------------------


def operator(stage: Stage, words: Words) -> None:
    """operator kill | stop | start | pause | resume | lose-api | find-api [0]: act on the operator
    with this number, or on the leading one."""
    what = words.take("what becomes of it")
    host = stage.operator(words.plain.pop(0) if words.plain else "")
    words.end()
    away = stage.world.weather.away_from
    match what:
        case "kill":
            host.kill()
        case "stop":
            host.stop()
            stage.until(lambda: not host.running, f"{host.name} has stopped")
        case "start":
            stage.world.start_operator(host)
        case "pause" if host.process is not None:
            host.process.pause()
        case "resume" if host.process is not None:
            host.process.resume()
        case "lose-api" if host.process is not None:
            away[host.process] = None
        case "find-api" if host.process is not None:
            away.pop(host.process, None)
        case _:
            raise BadScript(f"cannot {what} an operator")


def api(stage: Stage, words: Words) -> list[str]:
    """api down | hung | ok: the API server refuses all requests, answers none, or serves. api keep
    0 log | snapshots: hold back the writes of operator 0 to the metadata log or its snapshots,
    without an answer; api deliver 0, api drop 0: carry them out, late, or never."""
    what = words.take("how it is")
    weather = stage.world.weather
    told: list[str] = []
    if what in ("keep", "deliver", "drop"):
        told = _keep(stage, words, what)
    elif what in ("down", "hung", "ok"):
        weather.down, weather.hung = what == "down", what == "hung"
    else:
        raise BadScript(f"the API server cannot be {what}")
    words.end()
    return told


def _keep(stage: Stage, words: Words, what: str) -> list[str]:
    """Hold back writes of an operator, or report how many held writes were carried out and
    refused."""
    weather, server = stage.world.weather, stage.world.api_server
    process = stage.operator(words.take("an operator")).process
    if process is None:
        raise BadScript("that operator never ran")
    if what == "keep":
        kind = words.take("log or snapshots")
        if kind not in KEPT:
            raise BadScript(f"operators keep no {kind}")
        weather.kept[process, KEPT[kind]] = []
        return []
    keys = [key for key in weather.kept if key[0] is process]
    requests = [request for key in keys for request in weather.kept.pop(key)]
    if what == "drop":
        return []
    codes = [server.handle(request).status for request in requests]
    return [f"{len(codes)} writes arrive, {sum(code < 300 for code in codes)} are carried out"]


def etcd(stage: Stage, words: Words) -> None:
    """etcd backup | restore | lose | confirm: copy everything that the API server stores, restore
    the copy, delete the metadata log, or confirm the history that the status names."""
    what = words.take("what becomes of it")
    words.end()
    if what == "backup":
        stage.etcd_backup = stage.world.etcd.backup()
    elif what == "lose":
        stage.world.ghost.went_back()
        lose_log(stage.world)
    elif what == "confirm":
        confirm_history(stage.world)
    elif what == "restore" and stage.etcd_backup is not None:
        go_back(stage.world, stage.etcd_backup)
    else:
        raise BadScript(f"cannot {what} etcd")


def namespace(stage: Stage, words: Words) -> None:
    """namespace recreate: delete everything in the cluster's namespace but the volumes, and apply
    the administrator's objects again."""
    if words.take("what becomes of it") != "recreate":
        raise BadScript("a namespace is recreated")
    words.end()
    stage.world.objects.recreate()
    stage.world.ghost.was_emptied()
    if stage.world.secured is not None:
        stage.world.secured.inside.made_anew.update(stage.world.ghost.image.brokers)


VERBS: dict[str, Verb] = {
    "namespace": namespace,
    "kill": kill,
    "power": power,
    "write-back": write_back,
    "stop": stop,
    "start": start,
    "pause": pause,
    "resume": resume,
    "disk": disk,
    "shorten": shorten,
    "crash": crash,
    "clock": clock,
    "cut": cut,
    "heal": heal,
    "slow": slow,
    "busy": busy,
    "read-slowly": read_slowly,
    "hold": hold,
    "release": release,
    "lose": lose,
    "operator": operator,
    "api": api,
    "etcd": etcd,
}

#!/usr/bin/env python3
"""Runs a worker twice at once on one row, kills it in the middle, and pauses it while another takes over. It needs psql, and no packages.

A worker is any command that works on what is due and then exits. It must end by itself. The database must be a test's own:
in part 2, sessions that wait for a lock on TABLE are ended, and in part 3, each TABLE has a trigger in the schema twice_py.

Part 1, twice at once. Writes to each TABLE are held up until both copies have read what they read and want to write. Then both
go on. After them the worker runs once more, as after a redelivery.

Part 2, killed in the middle, once for each TABLE. When the worker wants to write to TABLE for the first time it gets SIGKILL,
and its session ends: all that it has committed before stays. Then it runs again.

Part 3, paused, once for each statement that writes to a TABLE. The worker gets SIGSTOP before that statement. Its lease is moved
into the past (--recover), and another copy runs to its end. Then the first one goes on. It goes on earlier if the copy waits for one
of its locks. Once the copy has completed the work, the first one must not change a row that is there. This part runs if the others
pass.

After each part the check must hold. If it returns a number, that is how often the effect is there, and must be 1.

  twice.py --database postgres://localhost/test --table orders --table shipments \\
    --setup "truncate orders, shipments; insert into orders values (17)" \\
    --check "select count(*) from shipments where order_id = 17" \\
    -- ./my-worker --order 17

Exit status: 0 if all parts pass, 1 if a part fails, 2 if it could not be tried.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

APPLICATION = "twice.py"
# The sessions of workers in pg_stat_activity.
WORKERS = f"datname = current_database() and backend_type = 'client backend' and application_name <> '{APPLICATION}'"
UNTOUCHED = "if your worker has a lease, move it into the past with --recover: the second run changed nothing"
MOST_WRITES = 100  # before which a worker is paused


class Trouble(Exception):
    """The worker could not be tried. The text says why, and what to do."""


def arguments():
    text, _, usage = __doc__.partition("\n\n")
    p = argparse.ArgumentParser(prog="twice.py", description=text, epilog=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--database", default=os.environ.get("DATABASE_URL"), metavar="URL", help="the test's database (default: $DATABASE_URL)")
    p.add_argument("--table", action="append", required=True, help="a table that the worker writes, with its schema if need be; once for each")
    p.add_argument("--setup", required=True, metavar="SQL", help="run before each part: empties the tables, and adds the row to work on")
    p.add_argument("--check", required=True, metavar="SQL", help="returns true, or the number of effects, which must be 1")
    p.add_argument("--recover", metavar="SQL", help="run after a kill or a pause: moves the worker's leases into the past, if it has any")
    p.add_argument("--ignore", action="append", default=[], metavar="COLUMN", help="a column that a paused worker may change late; once for each")
    p.add_argument("--seconds", type=float, default=60, help="the longest that a run of the worker may take (default: 60)")
    p.add_argument("command", nargs="+", help="the worker, after --")
    a = p.parse_args()
    if not a.database:
        p.error("no database: give --database, or set DATABASE_URL")
    if shutil.which("psql") is None:
        p.error("psql is not on the PATH: install the client of PostgreSQL")
    return a


class Database:
    def __init__(self, url):
        self.url = url

    def psql(self, *options, **more):
        env = dict(os.environ, PGAPPNAME=APPLICATION)
        return subprocess.Popen(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *options, self.url],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **more)

    def ask(self, what, sql):
        p = self.psql()
        out, err = p.communicate(sql + ";\n")
        if p.returncode != 0:
            raise Trouble(f"{what} failed: {err.strip()}\nRun it in psql on {self.url}, and repair it.")
        return out.strip()

    def rows(self, tables, without=()):
        """Returns how often each row is in the tables, without some columns."""
        each = " union all ".join(f"select {i}, (to_jsonb(twice_py) - array[{', '.join(map(literal, without))}]::text[])::text from {table} as twice_py"
                                  for i, table in enumerate(tables))
        return collections.Counter(self.ask("reading the tables", each).splitlines())


def literal(text):
    return "'" + text.replace("'", "''") + "'"


class Session:
    """A session of psql that stays, and holds locks until lift."""

    def __init__(self, database):
        self.database = database
        self.psql = database.psql()
        self.pid = self.say("select pg_backend_pid();")

    def say(self, sql):
        self.psql.stdin.write(sql + "\n\\echo said\n")
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line == "said\n":
                return "".join(lines).strip()
            lines.append(line)
        raise Trouble(f"{sql} failed: {self.psql.stderr.read().strip()}\nGive --table the names of tables that exist.")

    def settle(self, seconds):
        """Waits until the statements that a worker has sent have ended or wait for a lock, so that none renews a lease later."""
        began = time.monotonic()
        while time.monotonic() - began < seconds and self.database.ask(
                "looking for running statements", f"select exists (select from pg_stat_activity where {WORKERS} and state = 'active'"
                " and wait_event_type is distinct from 'Lock')") == "t":
            time.sleep(0.05)

    def lift(self):
        self.psql.stdin.close()
        self.psql.wait()


class Barrier(Session):
    """Holds up writes to tables. Reads and SELECT … FOR UPDATE pass."""

    def __init__(self, database, tables):
        super().__init__(database)
        self.say("begin;")
        self.say(f"lock table {', '.join(tables)} in share mode;")

    def waiting(self):
        """Returns the number of sessions that wait for a lock: for this one, or for each other."""
        return int(self.database.ask("looking for waiting sessions",
                                     f"select count(*) from pg_stat_activity where {WORKERS} and wait_event_type = 'Lock'"))

    def end_waiting(self):
        """Ends the sessions that wait for this one, as the death of a machine does."""
        self.database.ask("ending the worker's session",
                          f"select pg_terminate_backend(a.pid, 60000) from pg_stat_activity as a where {self.pid} = any(pg_blocking_pids(a.pid))")


class Gate(Session):
    """Holds up the nth statement that writes to one of the tables, by a trigger that waits for an advisory lock."""

    KEY = int.from_bytes(b"twic", "big")

    def __init__(self, database, tables, nth):
        super().__init__(database)
        self.tables = tables
        for i in range(len(tables)):
            self.say(f"select pg_advisory_lock({self.KEY}, {i});")
        hold = (f"begin if nextval('twice_py.writes') = {nth} then perform pg_advisory_xact_lock_shared({self.KEY}, tg_argv[0]::int); end if;"
                " return null; end")
        database.ask("making triggers", "drop schema if exists twice_py cascade; create schema twice_py; create sequence twice_py.writes;"
                     f" create function twice_py.hold() returns trigger language plpgsql security definer as $$ {hold} $$;"
                     + "".join(f" create trigger twice_py before insert or update or delete on {table} for each statement"
                               f" execute function twice_py.hold({i});" for i, table in enumerate(tables)))

    def holds_up(self):
        """Returns the table that a session waits to write to, or None."""
        held = self.database.ask("looking for the worker", "select min(objid::int) from pg_locks where locktype = 'advisory' and not granted"
                                 f" and database = (select oid from pg_database where datname = current_database()) and classid = {self.KEY}")
        return self.tables[int(held)] if held else None

    def open_to_others(self):
        """Lets later statements pass. Returns the sessions of the worker that is held up."""
        self.database.ask("opening the gate", "create or replace function twice_py.hold() returns trigger language plpgsql as $$ begin return null; end $$")
        return json.loads(self.database.ask("looking for the worker's sessions", f"select coalesce(json_agg(pid), '[]') from pg_stat_activity where {WORKERS}"))

    def blocks(self, sessions):
        """Reports whether another session waits for one of these."""
        pids = f"array[{', '.join(map(str, sessions))}]::int[]"
        return self.database.ask("looking for waiting sessions",
                                 f"select count(*) from pg_stat_activity where pid <> all({pids}) and pg_blocking_pids(pid) && {pids}") != "0"

    def remove(self):
        self.database.ask("removing the triggers", "drop schema if exists twice_py cascade")


class Worker:
    def __init__(self, a):
        self.seconds, self.errors = a.seconds, tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(a.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors,
                                            start_new_session=True, env=dict(os.environ, DATABASE_URL=a.database))
        except OSError as error:
            raise Trouble(f"{a.command[0]} does not start: {error.strerror}\nGive the worker's command after --.") from error

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Waits for the end of the worker, and returns its errors. A copy that comes too late may fail."""
        try:
            self.process.wait(timeout=self.seconds)
            self.errors.seek(0)
            return self.errors.read().decode(errors="replace").strip()
        except subprocess.TimeoutExpired:
            self.kill()
            raise Trouble(f"the worker still ran after {self.seconds:g} s\n"
                          "Let it exit when nothing is due, or give more --seconds. If it waits for its own lease, give --recover.") from None


def until_they_wait(barrier, workers, seconds):
    """Waits until each worker waits for a lock or has ended. Returns how many wait."""
    began = time.monotonic()
    while True:
        running = sum(w.running() for w in workers)
        waiting = barrier.waiting()
        if waiting >= running or time.monotonic() - began > seconds:
            return min(waiting, running)
        time.sleep(0.05)


def never(tables, errors):
    return (f"the worker never wanted to write to {', '.join(tables)}" + (", and said: " + errors if errors else "") + "\n"
            "Name the tables that it writes, let --setup add a row that is due, and run the worker alone.")


def verdict(database, check):
    """Returns None if the check holds, and else what is wrong."""
    said = database.ask("--check", check)
    if said in ("t", "true", "1"):
        return None
    if said.isdigit():
        return "lost: the effect is not there" if said == "0" else f"doubled: the effect is there {said} times"
    if said in ("f", "false"):
        return "the check is false"
    raise Trouble(f"--check returned {said!r}\nLet it return one value: true or false, or the number of effects.")


def at_once(a, database):
    database.ask("--setup", a.setup)
    barrier = Barrier(database, a.table)
    workers = []
    try:
        workers = [Worker(a), Worker(a)]
        met = until_they_wait(barrier, workers, a.seconds)
    finally:
        barrier.lift()
        for w in workers if sys.exc_info()[0] else []:
            w.kill()
    errors = [w.end() for w in workers]
    if met == 0:
        raise Trouble(never(a.table, errors[0]))
    wrong = verdict(database, a.check)
    if wrong is None:
        Worker(a).end()
        wrong = verdict(database, a.check)
        return wrong and "when it ran once more, " + wrong
    return wrong


def killed(a, database, table):
    database.ask("--setup", a.setup)
    barrier, worker = Barrier(database, [table]), Worker(a)
    try:
        met = until_they_wait(barrier, [worker], a.seconds)
        if met == 0:
            raise Trouble(never([table], "" if worker.running() else worker.end()))
        worker.kill()
        barrier.settle(a.seconds)
        barrier.end_waiting()
    finally:
        worker.kill()
        barrier.lift()
    left = database.rows(a.table)
    recover(a, database)
    Worker(a).end()
    wrong = verdict(database, a.check)
    if wrong and database.rows(a.table) == left:
        return f"{UNTOUCHED} ({wrong})"
    return wrong


def recover(a, database):
    if a.recover:
        database.ask("--recover", a.recover)


def paused(a, database, nth):
    """Pauses a worker before its nth write while another takes over. Returns the table, or None without such a write, and what is wrong."""
    database.ask("--setup", a.setup)
    gate, first = Gate(database, a.table, nth), None
    try:
        first = Worker(a)
        table = until_held_up(gate, first, a.seconds)
        if table is None:
            first.end()
            return None, None
        first.signal(signal.SIGSTOP)
        gate.settle(a.seconds / 2)
        sessions = gate.open_to_others()

        def take_over():
            recover(a, database)
            Worker(a).end()

        with concurrent.futures.ThreadPoolExecutor() as threads:
            other = threads.submit(take_over)
            try:
                began = time.monotonic()
                while not other.done() and not gate.blocks(sessions) and time.monotonic() - began < a.seconds / 2:
                    time.sleep(0.05)
                left = database.rows(a.table, a.ignore) if other.done() and verdict(database, a.check) is None else None
            finally:
                gate.lift()
                first.signal(signal.SIGCONT)
            other.result()
        first.end()
        if left and left - database.rows(a.table, a.ignore):
            return table, "the paused worker changed a row after the other had completed the work"
    finally:
        if first:
            first.kill()
        gate.lift()
        gate.remove()
    recover(a, database)
    Worker(a).end()
    return table, verdict(database, a.check)


def until_held_up(gate, worker, seconds):
    """Waits until the worker is held up or has ended. Returns the table, or None."""
    began = time.monotonic()
    while True:
        running, table = worker.running(), gate.holds_up()
        if table or not running or time.monotonic() - began > seconds:
            return table
        time.sleep(0.05)


def main():
    a = arguments()
    database = Database(a.database)
    parts = [("twice at once", lambda: at_once(a, database))]
    parts += [(f"killed before it writes to {table}, and run again", lambda table=table: killed(a, database, table)) for table in a.table]
    try:
        failed = [said for name, part in parts if (said := tell(name, part()))]
        late = [] if failed else pauses(a, database)
    except Trouble as trouble:
        print("twice.py:", trouble, file=sys.stderr)
        return 2
    if failed:
        print(("If it has no lease: let" if all(UNTOUCHED in said for said in failed) else "Let") + " one statement decide who works, "
              "and commit it with the rows of the work: docs/guides/patterns.md#select-then-act")
    if late:
        print("Let the transaction of the work check the token of the claim, such as update … where id = 17 and token = …, "
              "and roll back if it changes no row: docs/guides/patterns.md#jobs-and-locks")
    return 1 if failed or late else 0


def tell(name, wrong):
    print("ok  " if wrong is None else "FAIL", name + ("" if wrong is None else ": " + wrong), flush=True)
    return wrong


def pauses(a, database):
    """Pauses the worker before each of its writes. Returns what is wrong."""
    all_wrong = []
    for nth in range(1, MOST_WRITES + 1):
        table, wrong = paused(a, database, nth)
        if table is None:
            break
        if tell(f"paused before write {nth}, to {table}, while another takes over", wrong):
            all_wrong.append(wrong)
    else:
        print(f"     the writes after these {MOST_WRITES} were not tried")
    return all_wrong


if __name__ == "__main__":
    sys.exit(main())

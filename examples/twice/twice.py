#!/usr/bin/env python3
"""Runs a worker twice at once on one row, then kills it in the middle and runs it again. It needs psql, and no packages.

A worker is any command that works on what is due and then exits. It must end by itself. The database must be a test's own:
in the second part, sessions that wait for a lock on TABLE are ended.

Part 1, twice at once. Writes to each TABLE are held up until both copies have read what they read and want to write. Then both
go on. After them the worker runs once more, as after a redelivery.

Part 2, killed in the middle, once for each TABLE. When the worker wants to write to TABLE for the first time it gets SIGKILL,
and its session ends: all that it has committed before stays. Then it runs again.

After each part the check must hold. If it returns a number, that is how often the effect is there, and must be 1.

  twice.py --database postgres://localhost/test --table orders --table shipments \\
    --setup "truncate orders, shipments; insert into orders values (17)" \\
    --check "select count(*) from shipments where order_id = 17" \\
    -- ./my-worker --order 17

Exit status: 0 if all parts pass, 1 if a part fails, 2 if it could not be tried.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

APPLICATION = "twice.py"


class Trouble(Exception):
    """The worker could not be tried. The text says why, and what to do."""


def arguments():
    text, _, usage = __doc__.partition("\n\n")
    p = argparse.ArgumentParser(prog="twice.py", description=text, epilog=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--database", default=os.environ.get("DATABASE_URL"), metavar="URL", help="the test's database (default: $DATABASE_URL)")
    p.add_argument("--table", action="append", required=True, help="a table that the worker writes, with its schema if need be; once for each")
    p.add_argument("--setup", required=True, metavar="SQL", help="run before each part: empties the tables, and adds the row to work on")
    p.add_argument("--check", required=True, metavar="SQL", help="returns true, or the number of effects, which must be 1")
    p.add_argument("--recover", metavar="SQL", help="run after a kill: moves the worker's leases into the past, if it has any")
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


class Barrier:
    """Holds up writes to tables. Reads and SELECT … FOR UPDATE pass."""

    def __init__(self, database, tables):
        self.database = database
        self.psql = database.psql()
        self.pid = self.say("select pg_backend_pid();")
        self.say("begin;")
        self.say(f"lock table {', '.join(tables)} in share mode;")

    def say(self, sql):
        self.psql.stdin.write(sql + "\n\\echo said\n")
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line == "said\n":
                return "".join(lines).strip()
            lines.append(line)
        raise Trouble(f"{sql} failed: {self.psql.stderr.read().strip()}\nGive --table the names of tables that exist.")

    def waiting(self):
        """Returns the number of sessions that wait for a lock: for this one, or for each other."""
        return int(self.database.ask("looking for waiting sessions",
                                     "select count(*) from pg_stat_activity where datname = current_database()"
                                     f" and wait_event_type = 'Lock' and application_name <> '{APPLICATION}'"))

    def end_waiting(self):
        """Ends the sessions that wait for this one, as the death of a machine does."""
        self.database.ask("ending the worker's session",
                          f"select pg_terminate_backend(a.pid, 60000) from pg_stat_activity as a where {self.pid} = any(pg_blocking_pids(a.pid))")

    def lift(self):
        self.psql.stdin.close()
        self.psql.wait()


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

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
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
        barrier.end_waiting()
    finally:
        worker.kill()
        barrier.lift()
    if a.recover:
        database.ask("--recover", a.recover)
    Worker(a).end()
    return verdict(database, a.check)


def main():
    a = arguments()
    database = Database(a.database)
    parts = [("twice at once", lambda: at_once(a, database))]
    parts += [(f"killed before it writes to {table}, and run again", lambda table=table: killed(a, database, table)) for table in a.table]
    wrong = 0
    try:
        for name, part in parts:
            said = part()
            wrong += said is not None
            print("ok  " if said is None else "FAIL", name + ("" if said is None else ": " + said), flush=True)
    except Trouble as trouble:
        print("twice.py:", trouble, file=sys.stderr)
        return 2
    if wrong:
        print("Let one statement decide who works, and commit it with the rows of the work: docs/guides/patterns.md#select-then-act")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

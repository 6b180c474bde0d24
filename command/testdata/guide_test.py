"""Runs the code of docs/guides/python.md: guide_test.py URL twice|failures|race."""

import re
import subprocess
import sys

import guide


class DatabaseError(Exception):
    pass


class PsqlConnection:
    """As much of a DB-API connection as the guide uses, spoken through a psql process."""

    def __init__(self, url):
        self.psql = subprocess.Popen(
            ["psql", "-X", "-q", "-A", "-t", "-F", "\x1f", "-v", "VERBOSITY=verbose", "-P", "null=\x1e", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.open = False

    def send(self, statement):
        self.psql.stdin.write(statement + ";\n\\echo \x1d\n")
        self.psql.stdin.flush()
        lines = []
        for line in self.psql.stdout:
            if line == "\x1d\n":
                break
            lines.append(line.rstrip("\n"))
        for line in lines:
            if re.match("(ERROR|FATAL):", line):
                raise DatabaseError("\n".join(lines))
        return [tuple(None if v == "\x1e" else v for v in line.split("\x1f")) for line in lines]

    def execute(self, statement, params=()):
        if not self.open:
            self.send("begin")
            self.open = True
        quoted = tuple("null" if p is None else "'" + str(p).replace("'", "''") + "'" for p in params)
        self.rows = self.send(statement % quoted)

    def cursor(self):
        return self

    def fetchone(self):
        return self.rows.pop(0)

    def commit(self):
        if self.open:
            self.open = False
            self.send("commit")

    def rollback(self):
        if self.open:
            self.open = False
            self.send("rollback")


def connect(url):
    for driver in ("psycopg", "psycopg2"):
        try:
            module = __import__(driver)
        except ImportError:
            continue
        print("with", driver)
        return module.connect(url)
    print("with psql: neither psycopg nor psycopg2 is installed")
    return PsqlConnection(url)


def twice(conn):
    first, second = guide.order_twice(conn)
    assert first[0] == second[0] and not first[1] and second[1], (first, second)
    try:
        guide.once(conn, "orders", "key-1", b"two", guide.place)
        raise AssertionError("another payload was accepted")
    except Exception as error:
        assert "P4002" in str(error) or getattr(error, "sqlstate", getattr(error, "pgcode", "")) == "P4002", error


def failures(conn):
    def fail(error):
        def work(cur):
            guide.place(cur)
            raise error
        return work

    for error, again in ((ValueError("boom"), ValueError), (guide.Failed("no stock"), guide.Failed)):
        try:
            guide.once(conn, "orders", "key-2", b"two", fail(error))
            raise AssertionError("no error")
        except again as raised:
            assert raised is error
    try:
        guide.once(conn, "orders", "key-2", b"two", guide.place)
        raise AssertionError("no error")
    except guide.Failed as stored:
        assert str(stored) == "no stock", stored
    value, replayed = guide.once(conn, "orders", "key-3", b"three", guide.place)
    assert not replayed and value["id"] > 0


def race(conn):
    def work(cur):
        cur.execute("insert into orders (body) values (%s) returning id", ("race",))
        return int(cur.fetchone()[0])

    guide.once(conn, "orders", "race", b"race", work, wait_ms=20000)


{"twice": twice, "failures": failures, "race": race}[sys.argv[2]](connect(sys.argv[1]))

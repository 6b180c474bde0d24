"""Runs the code of docs/guides/python.md: guide_test.py URL WHAT [ARGUMENT...].

With DIE_AT=N in the environment the process kills itself at the Nth place: before and after each statement and COMMIT.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import guide


class DatabaseError(Exception):
    def __init__(self, text):
        super().__init__(text)
        said = re.search(r"^(?:ERROR|FATAL):  (\w{5}):", text, re.M)
        self.sqlstate = said and said[1]


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
        return self.rows.pop(0) if self.rows else None

    def fetchall(self):
        return self.rows

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
        print("with", driver, file=sys.stderr)
        return module.connect(url)
    print("with psql: neither psycopg nor psycopg2 is installed", file=sys.stderr)
    return PsqlConnection(url)


class Mortal:
    """A connection, and its own cursor, whose process dies at a place."""

    at, passed = int(os.environ.get("DIE_AT", "0")), 0

    def __init__(self, conn, cursor=None):
        self.conn, self.of = conn, cursor

    def place(self):
        if threading.current_thread() is threading.main_thread():
            Mortal.passed += 1
            if Mortal.passed == Mortal.at:
                os.kill(os.getpid(), signal.SIGKILL)

    def cursor(self):
        return Mortal(self.conn, self.conn.cursor())

    def execute(self, *args):
        self.place()
        self.of.execute(*args)
        self.place()

    def commit(self):
        self.place()
        self.conn.commit()
        self.place()

    def rollback(self):
        self.conn.rollback()

    def fetchone(self):
        return self.of.fetchone()

    def fetchall(self):
        return self.of.fetchall()


def place(cur):
    cur.execute("insert into orders (body) values (%s) returning id", ("one",))
    return {"id": int(cur.fetchone()[0])}


def twice(conn):
    first = guide.once(conn, "orders", "key-1", b"one", place)
    second = guide.once(conn, "orders", "key-1", b"one", place)
    assert first[0] == second[0] and not first[1] and second[1], (first, second)
    try:
        guide.once(conn, "orders", "key-1", b"two", place)
        raise AssertionError("another payload was accepted")
    except guide.Reused:
        pass


def failures(conn):
    def fail(error):
        def work(cur):
            place(cur)
            raise error
        return work

    for error, again in ((ValueError("boom"), ValueError), (guide.Failed("no stock"), guide.Failed)):
        try:
            guide.once(conn, "orders", "key-2", b"two", fail(error))
            raise AssertionError("no error")
        except again as raised:
            assert raised is error
    try:
        guide.once(conn, "orders", "key-2", b"two", place)
        raise AssertionError("no error")
    except guide.Failed as stored:
        assert str(stored) == "no stock", stored
    value, replayed = guide.once(conn, "orders", "key-3", b"three", place)
    assert not replayed and value["id"] > 0


def race(conn):
    def work(cur):
        cur.execute("insert into orders (body) values (%s) returning id", ("race",))
        return int(cur.fetchone()[0])

    guide.once(conn, "orders", "race", b"race", work, wait_ms=20000)


def ask(conn, statement):
    cur = conn.cursor()
    cur.execute(statement)
    value = cur.fetchone()[0]
    conn.commit()
    return str(value)


def change(conn, statement):
    conn.cursor().execute(statement)
    conn.commit()


def jobs(conn):
    cur = conn.cursor()
    first = guide.enqueue(cur, "mail", "greet", {"name": "ada"}, key="greet-ada")
    assert guide.enqueue(cur, "mail", "greet", {"name": "ada"}, key="greet-ada") == first
    guide.enqueue(cur, "mail", "never", {})
    conn.commit()
    guide.enqueue(cur, "mail", "greet", {"name": "rolled back"})
    conn.rollback()

    tries = []

    def greet(cur, payload):
        cur.execute("insert into orders (body) values (%s)", ("hello " + payload["name"],))
        tries.append(payload)
        if len(tries) == 1:
            raise ValueError("the first try fails after it has written")

    def never(cur, payload):
        raise guide.Final("no retry can help")

    handlers = {"greet": greet, "never": never}
    # A process claims the job and dies: its lease is moved into the past, and the job is taken back.
    change(conn, "select count(*) from pawl_v1.job_claim('mail', null, 1, '{\"kinds\": [\"greet\"]}')")
    change(conn, "update pawl.job set lease_expires_at = clock_timestamp() - interval '1 second' where kind = 'greet'")
    guide.sweep(conn, list(handlers))
    assert ask(conn, "select count(*) from pawl.job where status = 'pending'") == "2"
    for _ in range(10):
        change(conn, "update pawl.job set available_at = clock_timestamp() where status = 'pending'")
        while guide.work_one(conn, "mail", handlers):
            pass
    assert len(tries) == 2, tries
    assert ask(conn, "select count(*) from orders where body = 'hello ada'") == "1"
    assert ask(conn, "select string_agg(kind || ' ' || status, ', ') from pawl.job") == "never dead_letter"


class Queue:
    """As much of boto3's SQS client as the guide uses: every message is received again until it is deleted."""

    def __init__(self):
        self.messages = {}

    def send_message(self, QueueUrl, MessageBody, MessageAttributes):
        self.messages[str(len(self.messages))] = {"Body": MessageBody, "MessageAttributes": MessageAttributes}

    def receive_message(self, **options):
        return {"Messages": [dict(m, ReceiptHandle=handle) for handle, m in self.messages.items()][:10]} if self.messages else {}

    def delete_message(self, QueueUrl, ReceiptHandle):
        self.messages.pop(ReceiptHandle)


def sqs_client():
    if "AWS_ENDPOINT_URL" not in os.environ:
        print("with a queue in memory: there is no AWS_ENDPOINT_URL")
        return Queue(), "orders"
    import boto3
    print("with boto3")
    client = boto3.client("sqs")
    return client, client.create_queue(QueueName="guide-python", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]


def queue(conn):
    client, url = sqs_client()

    def send(key, body):
        client.send_message(QueueUrl=url, MessageBody=body,
                            MessageAttributes={"Idempotency-Key": {"DataType": "String", "StringValue": key}})

    def apply(cur, message):
        cur.execute("insert into orders (body) values (%s)", (message["body"],))
        if message["body"] == "bad":
            raise ValueError("bad")

    for n in range(3):
        send("a", '{"body": "a"}')
    send("b", '{"body": "b"}')
    send("a", '{"body": "another"}')  # the same key with another body
    send("c", '{"body": "bad"}')
    failed = []
    for _ in range(3):
        failed += guide.consume(conn, client, url, "orders", apply)
        if len(failed) >= 2:
            break
    assert len(failed) >= 2 and any("P4002" in str(e) or getattr(e, "sqlstate", "") == "P4002" for e in failed), failed
    assert ask(conn, "select string_agg(body, ',' order by body) from orders where body in ('a', 'b', 'another', 'bad')") == "a,b"


def order(conn, *keys):
    for key in keys:
        print(*guide.create_order_once(conn, "acme", key, {"order_no": key, "cents": 5}))


def mail(conn, *keys):
    for key in keys:
        guide.apply_once(conn, "mails", key, b'{"body": "mail"}', lambda cur, message: effect(cur, key))


def effect(cur, what):
    cur.execute("insert into effects (what) values (%s)", (what,))


def webhook(conn, header, body):
    print(guide.receive_webhook(conn, "stripe", header, body.encode(), {"old": "another secret of it", "new": "the secret of the test"},
                                lambda cur, event: effect(cur, event["id"])))


def charge(conn, bank, *orders):
    for order_id in orders:
        try:
            print(json.dumps(guide.charge_order(conn, guide.Bank(bank, timeout_s=60), int(order_id), 5)))
        except Exception as error:
            print(type(error).__name__)


def reconcile(conn, bank):
    print(*sorted(type(e).__name__ for e in guide.reconcile(conn, guide.Bank(bank, timeout_s=60)).values()))


def documents(conn, mode, *ids):
    """Summarizes documents. In mode deaf the work goes on until a line is read, in mode broken it fails."""

    def summarize(body):
        if mode == "deaf":
            print("working", flush=True)
            sys.stdin.readline()
        if mode == "broken":
            raise ValueError("no summary")
        return body.upper()

    for n in ids:
        try:
            print(guide.summarize_once(conn, int(n), summarize, lambda cur: effect(cur, n)))
        except ValueError as error:
            print(error)


def reap(conn):
    print(*guide.reap(conn))


def worker(conn, url, mode, lease_s, *queues):
    """Runs one job of each queue. In mode slow its handler works until the lease is lost, in mode deaf until a line is read."""
    for name in queues:
        stop = threading.Event()

        def handle(payload, check):
            if mode != "quick":
                print("working", flush=True)
            while mode == "slow":
                try:
                    check()
                except guide.Lost:
                    print("stopped", flush=True)
                    stop.set()
                    raise
                stop.wait(0.01)
            if mode == "deaf":
                sys.stdin.readline()
            stop.set()
            return lambda cur: effect(cur, payload["what"])

        guide.work(lambda: Mortal(connect(url)), name, {"long": handle}, stop, float(lease_s))
    print("ended")


what, arguments = sys.argv[2], sys.argv[3:]
if what == "worker":
    arguments.insert(0, sys.argv[1])
{"twice": twice, "failures": failures, "race": race, "jobs": jobs, "queue": queue, "order": order, "mail": mail, "webhook": webhook,
 "charge": charge, "reconcile": reconcile, "documents": documents, "reap": reap, "worker": worker}[what](Mortal(connect(sys.argv[1])), *arguments)

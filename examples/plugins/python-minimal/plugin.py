#!/usr/bin/env python3
"""A plugin in one file of Python, written from docs/plugin-protocol.md; standard library only.

    PLUGIN_MANAGER_INGRESS_TOKEN=dev-token PLUGIN_CONTROL_PLANE_KEY=dev-key python3 plugin.py
"""
import hmac, json, os, random, signal, socket, sys, threading, time

ENV = os.environ
TOKEN, KEY = ENV["PLUGIN_MANAGER_INGRESS_TOKEN"], ENV["PLUGIN_CONTROL_PLANE_KEY"]
PLUGIN_MANAGER = (ENV.get("PLUGIN_MANAGER_RPC_HOST", "127.0.0.1"), int(ENV.get("PLUGIN_MANAGER_RPC_PORT", 4016)))
CONTROL_PLANE = (ENV.get("CONTROL_PLANE_TCP_HOST", "127.0.0.1"), int(ENV.get("RUNTIME_CONTROL_PLANE_TCP_PORT", 4021)))
HEARTBEAT = int(ENV.get("PLUGIN_HEARTBEAT_MS", 10_000)) / 1000
MAX_FRAME = 16 * 1024 * 1024

COUNT = {
    "nodeType": "plugin.python-minimal.count", "name": "Count words", "description": "Counts the words of a text",
    "inputs": [
        {"name": "text", "type": "textarea", "label": "Text", "required": True, "canBePort": True, "isPort": True},
        {"name": "pauseMs", "type": "number", "label": "Pause per word, ms", "static": True, "default": 0},
    ],
    "outputs": [{"name": "words", "type": "number", "label": "Words"}],
}


class Gone(Exception):
    """Nobody waits for the step any more."""


def count(inputs, step):
    """The work itself. Numbers may come as text."""
    text, pause = inputs.get("text"), float(inputs.get("pauseMs") or 0) / 1000
    if not isinstance(text, str) or not text.strip():
        raise ValueError("input text: must be a text that is not empty")
    words = text.split()
    for done, _ in enumerate(words, 1):
        if step.gone.wait(pause):
            raise Gone
        step.progress = done / len(words)
    return {"words": len(words)}


NODES = {COUNT["nodeType"]: count}


def send(sock, packet):
    text = json.dumps(packet)  # all ASCII: its length is the number of UTF-16 units
    sock.sendall(f"{len(text)}#{text}".encode())


def packets(sock):
    """Cuts what comes into frames; ends with the connection."""
    buffer = b""
    while True:
        head, mark, rest = buffer.partition(b"#")
        if len(head) > 10 or (mark and not head.isdigit()):
            raise ValueError("no frame")
        if mark and int(head) > MAX_FRAME:
            raise ValueError("the frame is too large")
        whole = body(rest, int(head)) if mark else None
        if whole is not None:
            buffer = rest[len(whole):]
            yield json.loads(whole)
            continue
        chunk = sock.recv(1 << 16)
        if not chunk:
            return
        buffer += chunk


def body(data, units):
    """The first bytes of data that are so many UTF-16 units; None when they are not all here."""
    if len(data) < units:  # a unit has at least one byte
        return None
    end = 0
    while units > 0 and end < len(data):
        first = data[end]
        end += 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        units -= 2 if first >= 0xF0 else 1
    return data[:end] if units == 0 and end <= len(data) else None


def call(address, pattern, data, once=False, patience=15):
    """A request, repeated until it is answered. Returns the response or raises the refusal."""
    pause = 0.1
    while True:
        try:
            with socket.create_connection(address, timeout=patience) as sock:
                send(sock, {"pattern": pattern, "data": data, "id": "1"})
                answer = next(packets(sock))
            error = answer.get("err")
            if not error:
                return answer.get("response")
            code = error.get("code") if isinstance(error, dict) else None
            if code in ("superseded", "run_terminal"):
                raise Gone
            if code and not error.get("retryable"):
                raise RuntimeError(f"{pattern}: {code}: {error.get('message')}")
        except (OSError, ValueError, StopIteration):
            pass  # no answer
        if once:
            return None
        time.sleep(random.uniform(0, pause))
        pause = min(2 * pause, 10)


class Step(threading.Thread):
    """One task, from its ack to its result."""

    def __init__(self, task):
        super().__init__()
        self.task, self.progress = task, 0
        self.gone, self.ended = threading.Event(), threading.Event()

    def report(self, kind, fields=None, once=False):
        names = ("executionId", "runId", "nodeId", "nodeType")
        if kind in ("ack", "result"):
            names += ("traceparent", "tracestate")
        about = {name: self.task[name] for name in names if name in self.task}
        return call(CONTROL_PLANE, f"plugin.executor.step_{kind}", {"key": KEY, **about, **(fields or {})}, once)

    def run(self):
        if ENV.get("DISABLE_RUNTIME_STEP_ACK") != "true":
            self.tell("ack")
        beats = threading.Thread(target=self.heartbeats, daemon=True)
        beats.start()
        try:
            result = {"status": "ok", "outputs": NODES[self.task["nodeType"]](self.task.get("inputs") or {}, self)}
        except Gone:
            return
        except ValueError as error:  # it would be the same the next time
            result = {"status": "error", "error": {"code": "invalid_node_input", "message": str(error), "retryable": False}}
        except Exception as error:
            result = {"status": "error", "error": {"message": f"{type(error).__name__}: {error}"}}
        finally:
            self.ended.set()
        beats.join()  # the result is the last word
        self.tell("result", result)

    def heartbeats(self):
        while HEARTBEAT and not self.ended.wait(HEARTBEAT) and not self.gone.is_set():
            self.tell("heartbeat", {"progress": self.progress}, once=True)

    def tell(self, kind, fields=None, once=False):
        try:
            self.report(kind, fields, once)
        except Gone:
            self.gone.set()
        except RuntimeError as refusal:
            print(refusal, file=sys.stderr)


steps, stopping, lock = {}, threading.Event(), threading.Lock()


def refusal(code, message, retryable=False):
    return {"err": {"status": "error", "code": code, "message": message, "retryable": retryable}, "isDisposed": True}


def take(task):
    if not isinstance(task, dict) or not all(isinstance(task.get(name), str) for name in ("executionId", "runId", "nodeType")):
        return refusal("invalid_request", "a task has executionId, runId and nodeType")
    if task["nodeType"] not in NODES:
        return refusal("node_type_unknown", f"there is no {task['nodeType']} here")
    with lock:
        if task["executionId"] not in steps:
            if stopping.is_set():
                return refusal("unavailable", "the plugin is stopping", retryable=True)
            steps[task["executionId"]] = Step(task)
            steps[task["executionId"]].start()
    return {"response": {"delivered": True}, "isDisposed": True}


def answer(pattern, data):
    if isinstance(pattern, dict):
        pattern = pattern.get("cmd")
    if pattern in ("executor_batch_pull", "plugin.executor_batch_pull"):
        shown = str((data or {}).get("token"))
        if not hmac.compare_digest(shown.encode(), TOKEN.encode()):
            return refusal("unauthorized", "unauthorized")
        return {"response": {"items": [COUNT]}, "isDisposed": True}
    if pattern in ("executor.task", "plugin.executor.task"):
        return take(data)
    return {"status": "error", "err": "There is no matching message handler defined in the remote service."}


def serve(sock):
    with sock:
        try:
            for packet in packets(sock):
                reply = answer(packet.get("pattern"), packet.get("data"))
                if "id" in packet:
                    send(sock, {**reply, "id": packet["id"]})
        except (OSError, ValueError, AttributeError):
            pass  # no frames, or gone: the connection is closed


def publish(port):
    manifest = {
        "token": TOKEN, "kind": "plugin_manifest_request_v2", "pluginId": "python-minimal",
        "publicationVersion": ENV.get("PLUGIN_PUBLICATION_VERSION", "0.1.0"), "label": "Python, minimal",
        "description": "A plugin without an SDK", "variables": [], "staticAssets": [],
        "executors": [{"nodeType": node} for node in NODES],
        "pull": {"host": ENV.get("PLUGIN_PULL_ADVERTISED_HOST", "127.0.0.1"), "port": port},
    }
    try:
        print("published:", call(PLUGIN_MANAGER, "manifest_request_v2", manifest, patience=60), file=sys.stderr)
    except RuntimeError as refused:
        print("not published; it serves all the same:", refused, file=sys.stderr)


def stop(*_):
    """Takes no more tasks, lets what runs end and be reported, and ends."""
    def drain():
        with lock:
            stopping.set()
        for step in list(steps.values()):
            step.join()
        os._exit(0)
    threading.Thread(target=drain).start()


signal.signal(signal.SIGTERM, stop)
listener = socket.create_server((ENV.get("CONVEYOR_BIND", "0.0.0.0"), int(ENV.get("PLUGIN_TCP_PORT", 9440))))
port = int(ENV.get("PLUGIN_PULL_ADVERTISED_PORT") or listener.getsockname()[1])
threading.Thread(target=publish, args=(port,), daemon=True).start()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

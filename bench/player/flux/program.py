# Submits the jobs of a workload to Flux at their times, and writes what happens to jobs of the instance, one JSON object per line.
#
#   flux python program.py JOBS START
#
# JOBS is a file with one job per line: its id in the workload, the seconds after the start at which it is submitted, the ids of the jobs
# that must have ended before it starts, and its jobspec. START is a named pipe, from which the program reads the start, in seconds since the
# epoch on the clock of this node, when it is ready. The lines that it writes:
#
#   {"ready": true}                                                   the program receives the events of jobs
#   {"job": "j1", "submit": 1700000000.000001, "took": 0.0001}        the request is sent, in 0.0001 s
#   {"job": "j1", "id": 123}                                          Flux has the job
#   {"job": "j1", "refused": "...", "time": 1700000000.000001}        Flux has refused the job
#   {"id": 123, "event": "alloc", "time": 1700000000.000001, "context": {}, "nodes": "compute-1"}
import collections
import json
import os
import sys
import time

import flux
import flux.job
from flux.constants import FLUX_RPC_STREAMING

EVENTS = ["submit", "priority", "alloc", "start", "finish", "exception", "clean"]

# Requests that are sent before the program reads answers and events again.
BURST = 50


class Player:
    def __init__(self, handle, jobs):
        self.handle = handle
        self.waiting = collections.deque(jobs)  # not submitted yet, in the order of their times
        self.start = None
        self.timer = None
        self.ids = {}  # by job; None: refused
        self.blocked = {}  # by job: the jobs that wait for its id
        self.ended = set()  # ids

    def write(self, **line):
        sys.stdout.write(json.dumps(line) + "\n")

    def listen(self):
        """Ask the job manager for the events of all jobs, and return when the stream has begun."""
        request = {"full": False, "allow": {name: 1 for name in EVENTS}}
        self.journal = self.handle.rpc("job-manager.events-journal", request, 0, FLUX_RPC_STREAMING)
        while self.journal.get()["id"] != -1:  # jobs that exist already
            self.journal.reset()
        self.journal.reset()
        self.journal.then(self.on_events)

    def on_events(self, future):
        response = future.get()
        future.reset()
        for event in response["events"]:
            line = {"id": response["id"], "event": event["name"], "time": event["timestamp"], "context": event.get("context", {})}
            if event["name"] == "alloc":
                line["nodes"] = ",".join(response["R"]["execution"]["nodelist"])
            if event["name"] == "clean":
                self.ended.add(response["id"])
            self.write(**line)
        sys.stdout.flush()

    def submit_due(self, *_):
        now = time.time()
        sent = 0
        while self.waiting and sent < BURST and self.start + self.waiting[0]["submit"] <= now:
            job = self.waiting.popleft()
            sent += 1
            unknown = [a for a in job.get("after", []) if a not in self.ids]
            if unknown:
                self.blocked.setdefault(unknown[0], []).append(job)
            else:
                self.submit(job)
        sys.stdout.flush()
        if self.waiting:
            delay = max(0.0, self.start + self.waiting[0]["submit"] - time.time())
            self.timer = self.handle.timer_watcher_create(delay, self.submit_due)
            self.timer.start()

    def submit(self, job):
        system = job["spec"]["attributes"]["system"]
        system["environment"] = {"PATH": os.environ["PATH"]}
        ids = [self.ids[a] for a in job.get("after", [])]
        system["dependencies"] = [{"scheme": "afterany", "value": str(i)} for i in ids if i is not None and i not in self.ended]
        at = time.time()
        flux.job.submit_async(self.handle, json.dumps(job["spec"])).then(self.on_answer, job)
        self.write(job=job["job"], submit=at, took=time.time() - at)

    def on_answer(self, future, job):
        try:
            self.ids[job["job"]] = int(flux.job.submit_get_id(future))
            self.write(job=job["job"], id=self.ids[job["job"]])
        except OSError as error:
            self.ids[job["job"]] = None
            self.write(job=job["job"], refused=error.strerror or str(error), time=time.time())
        for blocked in self.blocked.pop(job["job"], []):
            unknown = [a for a in blocked["after"] if a not in self.ids]
            if unknown:
                self.blocked.setdefault(unknown[0], []).append(blocked)
            else:
                self.submit(blocked)
        sys.stdout.flush()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        jobs = [json.loads(line) for line in file]
    player = Player(flux.Flux(), jobs)
    player.listen()
    player.write(ready=True)
    sys.stdout.flush()
    with open(sys.argv[2], encoding="utf-8") as pipe:
        player.start = float(pipe.read())
    player.submit_due()
    player.handle.reactor_run()


main()

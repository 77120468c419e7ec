# Submits the jobs of a workload to Flux at their times, and writes what happens to jobs of the instance, one JSON object per line.
#
#   flux python program.py JOBS START
#
# JOBS is a file with one job per line, as in the workload, with its jobspec. START is a named pipe, from which the program reads the start, in seconds since the
# epoch on the clock of this node, when it is ready. The lines that it writes:
#
#   {"ready": true}                                                   the program receives the events of jobs
#   {"job": "j1", "submit": 1700000000.000001, "took": 0.0001}        the request is sent, in 0.0001 s
#   {"job": "j1", "id": 123}                                          Flux has the job
#   {"job": "j1", "refused": "...", "time": 1700000000.000001}        Flux has refused the job
#   {"id": 123, "event": "alloc", "time": 1700000000.000001, "context": {}, "nodes": "compute-1"}
import heapq
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
        # A heap of the jobs whose time is known: the seconds after the start, the number of the job, and the job.
        self.waiting = [(job["submit"], n, job) for n, job in enumerate(jobs)]
        self.start = None
        self.timer = None
        self.ids = {}  # by job; a refused job has itself as its id
        self.names = {}  # by id: the job
        self.blocked = {}  # by job: the jobs that wait for its id, or for its end
        self.finished = {}  # by id: the time of the event finish
        self.ended = {}  # by id: the time at which the job finished

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
            self.write(**line)
            if event["name"] == "finish":
                self.finished[response["id"]] = event["timestamp"]
            if event["name"] == "clean":
                self.ended[response["id"]] = self.finished.pop(response["id"], event["timestamp"])
                self.release(self.names.get(response["id"]))
        sys.stdout.flush()

    def submit_due(self, *_):
        for _ in range(BURST):
            if not self.waiting or self.start + self.waiting[0][0] > time.time():
                break
            self.advance(*heapq.heappop(self.waiting))
        sys.stdout.flush()
        self.set_timer()

    def set_timer(self):
        """Wait for the time of the next job."""
        if self.timer:
            self.timer.stop()
        if self.waiting:
            delay = max(0.0, self.start + self.waiting[0][0] - time.time())
            self.timer = self.handle.timer_watcher_create(delay, self.submit_due)
            self.timer.start()

    def release(self, name):
        """Continue with the jobs that have waited for a job."""
        for blocked in self.blocked.pop(name, []):
            self.advance(*blocked)

    def advance(self, at, n, job):
        """Submit a job whose time has come, unless it must wait for another job, or for the end of its think time."""
        for a in job.get("after", []):
            if a not in self.ids or job.get("think", 0) > 0 and self.ids[a] not in self.ended:
                self.blocked.setdefault(a, []).append((at, n, job))
                return
        if job.get("think", 0) > 0:
            at = max(self.ended[self.ids[a]] for a in job["after"]) + job["think"] - self.start
            if self.start + at > time.time():
                heapq.heappush(self.waiting, (at, n, job))
                self.set_timer()
                return
        self.submit(job)

    def submit(self, job):
        system = job["spec"]["attributes"]["system"]
        system["environment"] = {"PATH": os.environ["PATH"]}
        ids = [self.ids[a] for a in job.get("after", [])]
        system["dependencies"] = [{"scheme": "afterany", "value": str(i)} for i in ids if i not in self.ended]
        at = time.time()
        flux.job.submit_async(self.handle, json.dumps(job["spec"])).then(self.on_answer, job)
        self.write(job=job["id"], submit=at, took=time.time() - at)

    def on_answer(self, future, job):
        name = job["id"]
        try:
            self.ids[name] = int(flux.job.submit_get_id(future))
            self.write(job=name, id=self.ids[name])
        except OSError as error:
            self.ids[name] = name
            self.ended[name] = time.time()
            self.write(job=name, refused=error.strerror or str(error), time=self.ended[name])
        self.names[self.ids[name]] = name
        self.release(name)
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

import json

from flux import Future, real_time


def submit_async(handle, jobspec):
    future = Future()

    def accept():
        job, error = handle.new_job(json.loads(jobspec))
        answer = (job and job.id, error)
        handle.at(real_time() + 0.005, lambda: future.push(answer))

    handle.at(real_time() + 0.001, accept)
    return future


def submit_get_id(future):
    number, error = future.get()
    if error:
        raise OSError(22, error)
    return number

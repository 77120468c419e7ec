package slurm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench/workload"
)

func TestParseMessage(t *testing.T) {
	for message, want := range map[string]record{
		"_slurm_rpc_submit_batch_job: JobId=3 InitPrio=4294901757 usec=294":            {kind: created, id: "3"},
		"sched: Allocate JobId=3 NodeList=compute-1 #CPUs=1 Partition=main":            {kind: placed, id: "3", text: "compute-1"},
		"sched: Allocate JobId=4_12(17) NodeList=compute-[1-2] #CPUs=2 Partition=main": {kind: placed, id: "4_12", text: "compute-[1-2]"},
		"sched/backfill: _start_job: Started JobId=5_3(8) in main on compute-1":        {kind: placed, id: "5_3", text: "compute-1"},
		"slurmctld: _job_complete: JobId=4_3(7) WEXITSTATUS 0":                         {kind: status, id: "4_3", text: success},
		"_job_complete: JobId=3 WTERMSIG 9":                                            {kind: status, id: "3", text: "signal 9"},
		"_job_complete: JobId=3 OOM failure":                                           {kind: status, id: "3", text: "OOM failure"},
		"_job_complete: JobId=3 cancelled by node failure":                             {kind: status, id: "3", text: "cancelled by node failure"},
		"_job_complete: JobId=4_* done":                                                {kind: ended, id: "4"},
		"_job_complete: JobId=3 done":                                                  {kind: ended, id: "3"},
		"Time limit exhausted for JobId=3":                                             {kind: killed, id: "3", text: "the time limit has passed"},
		"Killing JobId=3 on failed node compute-1":                                     {kind: killed, id: "3", text: "failed node compute-1"},
	} {
		if got, ok := parseMessage(message); !ok || got != want {
			t.Errorf("%s: %+v", message, got)
		}
	}
	for _, message := range []string{"", "JobId=", "sched: Allocate JobId=3", "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=3 uid 0",
		"error: _slurm_rpc_submit_batch_job: Invalid partition", "cleanup_completing: JobId=3 completion process took 5 seconds"} {
		if got, ok := parseMessage(message); ok {
			t.Errorf("%s: %+v", message, got)
		}
	}
}

// The time of syslog is used before the time at which journald has received a message. Messages that are no text are left out.
func TestParseLog(t *testing.T) {
	records, cursor, err := parseLog([]byte(`{"__CURSOR":"s=1","__REALTIME_TIMESTAMP":"1000002","_SOURCE_REALTIME_TIMESTAMP":"1000001","MESSAGE":"_job_complete: JobId=3 done"}

{"__CURSOR":"s=2","__REALTIME_TIMESTAMP":"1000003","MESSAGE":[74,111,98]}
{"__CURSOR":"s=3","__REALTIME_TIMESTAMP":"1000004","MESSAGE":null}
{"__CURSOR":"s=4","__REALTIME_TIMESTAMP":"1000005"}
`))
	if err != nil || len(records) != 1 || records[0].at.UnixMicro() != 1000001 || cursor != "s=4" {
		t.Errorf("%+v, %q, %v", records, cursor, err)
	}
	if records, cursor, err := parseLog(nil); records != nil || cursor != "" || err != nil {
		t.Errorf("%+v, %q, %v", records, cursor, err)
	}
}

func TestArguments(t *testing.T) {
	jobs, err := workload.Prepare([]workload.Job{{ID: "a", Nodes: 2, Tasks: 3, CPUs: 4, Memory: 100, Runtime: 61.5, Limit: 361, Queue: "it's; rm"}, {ID: "b", Runtime: 1e-3}, {ID: "c", User: "nobody"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"--nodes=2 --ntasks=3 --cpus-per-task=4 --time=7 --mem=200M --partition=it's; rm --uid=nobody --wrap=srun --cpus-per-task=4 sh -c 'LC_ALL=C",
		"--nodes=1 --ntasks=1 --cpus-per-task=1 --uid=nobody --wrap=LC_ALL=C",
		"--nodes=1 --ntasks=1 --cpus-per-task=1 --uid=nobody --wrap=LC_ALL=C",
	} {
		got, script, _ := strings.Cut(strings.Join(arguments(jobs[i:i+1]), " "), "\n")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if run := []string{"sleep 61.5", "sleep 0.001", "true"}[i]; !strings.Contains(script, "\nstamp first\n"+run+"\n") {
			t.Errorf("the script is %s", script)
		}
	}
	text := script([]command{jobs[:1]}, nil)
	if want := `'--partition=it'"'"'s; rm'`; !strings.Contains(text, want) {
		t.Errorf("%s is not in\n%s", want, text)
	}
}

// A script has at most maxCommands commands; jobs that wait for others are no arrays.
func TestCommands(t *testing.T) {
	var jobs []workload.Job
	for i, j := range equal(2*maxCommands+10, "j", workload.Job{Nodes: 1, Tasks: 1}) {
		j.CPUs = 1 + i%2
		jobs = append(jobs, j)
	}
	if cs := commands(jobs, largestArray); len(cs) != maxCommands || cs[maxCommands-1][0].ID != jobs[maxCommands-1].ID {
		t.Errorf("%d commands", len(cs))
	}
	if cs := commands([]workload.Job{{ID: "a"}, {ID: "b", User: "eve"}}, largestArray); len(cs) != 2 {
		t.Errorf("jobs of two users are in %d commands", len(cs))
	}
	waiting := equal(3, "j", workload.Job{After: []string{"x"}})
	if cs := commands(waiting, largestArray); len(cs) != 3 {
		t.Errorf("%d commands", len(cs))
	}
	text := script([]command{equal(2, "x", workload.Job{}), {{ID: "y", After: []string{"x-1", "old", "gone"}}}},
		func(job string) string { return map[string]string{"old": "12_7"}[job] })
	if want := `$(dependency "${id0:+${id0}_2}" 12_7)`; !strings.Contains(text, want) {
		t.Errorf("%s is not in\n%s", want, text)
	}
}

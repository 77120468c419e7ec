# The option `benchmarks` of a hive. A benchmark may be a function of { lib, … }, whose lib.jobs makes lists of jobs.
{ lib, ... }:
let
  inherit (lib) mkOption types;

  # Return a duration in seconds: a number of seconds, or a text such as "250ms", "1s" or "5m".
  seconds =
    value:
    let
      match = builtins.match "([0-9]+)(\\.[0-9]+)?(ms|s|m|h)" value;
      unit = builtins.elemAt match 2;
      number = builtins.fromJSON (
        builtins.elemAt match 0 + (if builtins.elemAt match 1 == null then "" else builtins.elemAt match 1)
      );
    in
    if !builtins.isString value then
      value
    else if match == null then
      throw "nixbench: a duration is a number of seconds, or a text such as \"250ms\", \"1s\" or \"5m\"; it is \"${value}\""
    else if unit == "ms" then
      number / 1000.0
    else if unit == "m" then
      number * 60
    else if unit == "h" then
      number * 3600
    else
      number;

  number = types.either types.ints.unsigned types.float;
  share = types.addCheck number (x: x >= 0 && x <= 1) // {
    description = "number between 0 and 1";
  };
  duration = types.either number (types.strMatching "[0-9]+(\\.[0-9]+)?(ms|s|m|h)") // {
    description = "number of seconds, or a text such as 250ms or 5m";
  };

  # Return the list with the jobs f 0, f 1, …, with ids.
  generate =
    count: f:
    builtins.genList (i: { id = "j${toString (i + 1)}"; } // f i) count;
  elementOf = list: i: builtins.elemAt list (lib.mod i (builtins.length list));

  # Return jobs if all requirements are met. Otherwise throw the text of the first requirement that is not met. Each
  # requirement is about the arguments of the function `name` of lib.jobs.
  require =
    name: requirements: jobs:
    lib.foldr (
      r: result: if r.isMet then result else throw "nixbench: lib.jobs.${name}: ${r.text}"
    ) jobs requirements;

  # Functions that return lists of jobs.
  jobs = {
    # Jobs that end at once: they measure what the scheduler itself can do.
    null =
      {
        jobs,
        cpus ? 1,
      }:
      generate jobs (_: {
        inherit cpus;
        runtime = 0;
      });
    # Jobs with one task that runs for some time.
    sleep =
      {
        jobs,
        runtime,
        cpus ? 1,
        memory ? 0,
      }:
      generate jobs (_: {
        inherit cpus memory;
        runtime = seconds runtime;
      });
    # Jobs whose tasks, one per node, must start together.
    gang =
      {
        jobs,
        size,
        runtime,
        cpus ? 1,
      }:
      generate jobs (_: {
        inherit cpus;
        nodes = size;
        gang = true;
        runtime = seconds runtime;
      });
    # Gangs of different sizes, in turn. If saturation is set, the jobs use this share of the processors (1: all of them).
    # To do so, job i + 1 is submitted when this share of the processors would have done the work of job i.
    mixed =
      {
        jobs,
        sizes,
        runtime,
        cpus ? 1,
        saturation ? null,
        places ? null,
      }:
      let
        time = seconds runtime;
        sum = lib.foldl' (a: b: a + b) 0;
        # The sum of the sizes of the jobs before job i.
        before =
          i:
          let
            turns = i / builtins.length sizes;
          in
          turns * sum sizes + sum (lib.take (i - turns * builtins.length sizes) sizes);
        submit =
          i:
          lib.optionalAttrs (saturation != null) {
            submit = before i * cpus * time / (saturation * places * 1.0);
          };
        widest = lib.foldl' lib.max 0 sizes * cpus;
      in
      require "mixed"
        [
          {
            isMet = (saturation == null) == (places == null);
            text = "set both saturation and places, the number of processors of the cluster's nodes, or none of them";
          }
          {
            isMet = saturation == null || saturation > 0;
            text = "saturation is a share of the places, such as 0.9, and must be above 0";
          }
          {
            isMet = places == null || places >= widest;
            text = "places is ${toString places}, and the largest gang needs ${toString widest}";
          }
        ]
        (
          generate jobs (
            i:
            {
              inherit cpus;
              nodes = elementOf sizes i;
              gang = elementOf sizes i > 1;
              runtime = time;
            }
            // submit i
          )
        );
    # Jobs that come and go: `running` jobs run at the same time, on average. Their run times are 0.5, 1 and 1.5 times runtime, in turn, so
    # that the jobs end in another order than they are submitted.
    churn =
      {
        jobs,
        running,
        runtime,
        cpus ? 1,
        memory ? 0,
      }:
      let
        time = seconds runtime;
      in
      require "churn"
        [
          {
            isMet = running > 0 && time > 0;
            text = "running and runtime must be above 0";
          }
        ]
        (
          generate jobs (i: {
            inherit cpus memory;
            runtime =
              time
              * elementOf [
                0.5
                1.0
                1.5
              ] i;
            submit = i * time / (running * 1.0);
          })
        );
  };

  workload = {
    options = {
      jobs = mkOption {
        type = types.listOf types.raw;
        default = [ ];
        example = lib.literalExpression ''lib.jobs.gang { jobs = 20; size = 4; runtime = "1s"; }'';
        description = ''
          Jobs: attribute sets with `id`, and optionally `submit` (seconds after the start; default: `arrival` decides), `nodes` (1),
          `tasks` (one per node), `cpus` (of each task; 1), `memory` (MiB of each task), `runtime` (seconds; 0), `limit` (the time limit that the job requests; none), `user` (an account of all nodes; SLURM only), `queue`, `gang`
          (false), `after` (a list of ids), and `think` (seconds from the end of these jobs to the submission; 0). `lib.jobs.null`, `sleep`, `gang`, `mixed` and `churn` return such lists.
        '';
      };
      program = mkOption {
        type =
          types.coercedTo (types.either types.path types.package) (p: [ p ])
            (types.listOf (types.either types.path types.str));
        default = [ ];
        example = lib.literalExpression ''[ ./play.sh "--verbose" ]'';
        description = ''
          Program on this computer that submits the jobs and reports their events, and its arguments: a file of
          the hive or in a store path. [bench.md](bench.md#a-program-that-plays-the-workload) describes what it
          reads and prints.
        '';
      };
      trace = mkOption {
        type = types.nullOr types.path;
        default = null;
        example = lib.literalExpression "./log.swf";
        description = "File in the Standard Workload Format whose jobs are submitted, instead of `jobs`.";
      };
      traceJobs = mkOption {
        type = types.ints.positive;
        default = 1000;
        description = "Number of jobs of the trace that are used, from its beginning.";
      };
      traceCpus = mkOption {
        type = types.ints.positive;
        default = 1;
        description = "Processors of a node of this cluster. A job of the trace that had more of them gets several nodes.";
      };
      traceUsers = mkOption {
        type = types.attrsOf types.str;
        default = { };
        example = {
          "1" = "alice";
        };
        description = "Accounts of the users in the trace, by their numbers. The jobs of other users belong to no user.";
      };
      traceQueues = mkOption {
        type = types.attrsOf types.str;
        default = { };
        example = {
          "2" = "long";
        };
        description = "Partitions or queues of the cluster, by the numbers of the queues in the trace. Other jobs get the default.";
      };
      traceSpeed = mkOption {
        type = types.addCheck number (x: x > 0);
        default = 1;
        description = "Factor by which the times of submission, the run times, the requested times and the think times in the trace are divided.";
      };
      arrival = mkOption {
        type = types.either (types.enum [ "burst" ]) (
          types.submodule {
            options = {
              rate = mkOption {
                type = types.addCheck number (x: x > 0);
                description = "Jobs per second.";
              };
              poisson = mkOption {
                type = types.bool;
                default = false;
                description = "Whether the times between jobs are random, with an exponential distribution.";
              };
            };
          }
        );
        default = "burst";
        example = {
          rate = 10;
        };
        description = "When jobs without `submit` are submitted: all at the start (`burst`), or at a rate.";
      };
      timeLimit = mkOption {
        type = duration;
        default = "10m";
        apply = seconds;
        description = "Time after which a trial ends with the result that it did not finish.";
      };
      kubernetes = {
        image = mkOption {
          type = types.str;
          default = "busybox:stable";
          description = "Image of the pods. All workers pull it before the workload begins.";
        };
        command = mkOption {
          type = types.listOf types.str;
          default = [ ];
          example = [
            "/task"
            "{runtime}"
            "{job}"
          ];
          description = ''
            Command of the pods; `{runtime}` is replaced by the seconds that the job runs, and `{job}` by its id. `[ ]`: a script
            that needs `sh` and `sleep` of busybox or bash. [bench.md](bench.md#how-jobs-are-submitted-and-measured) says what a command
            with `{job}` prints.
          '';
        };
        scheduler = mkOption {
          type = types.str;
          default = "";
          example = "gangs";
          description = "`schedulerName` of the pods; empty: the default scheduler.";
        };
        gangs = mkOption {
          type = types.enum [
            ""
            "coscheduling"
            "volcano"
          ];
          default = "";
          example = "coscheduling";
          description = "Scheduler of gangs: a gang gets a PodGroup of coscheduling or of Volcano, or (empty) none, so that its pods are placed one by one.";
        };
      };
    };
  };

  # A level of a factor, as in the matrix. It becomes a text.
  level = types.coercedTo (types.either types.int types.bool) (
    l: if builtins.isBool l then lib.boolToString l else toString l
  ) types.str;

  claim.options = {
    metric = mkOption {
      type = types.str;
      example = "throughput";
      description = "Metric that the claim is about.";
    };
    factor = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "scheduler";
      description = "Factor whose levels `a` and `b` are compared. The claim is then about the ratio of a to b.";
    };
    a = mkOption {
      type = types.nullOr level;
      default = null;
      example = "slurm";
      description = "First level of `factor`.";
    };
    b = mkOption {
      type = types.nullOr level;
      default = null;
      example = "kubernetes";
      description = "Second level of `factor`.";
    };
    op = mkOption {
      type = types.enum [
        ">"
        ">="
        "<"
        "<="
        "within"
      ];
      example = ">=";
      description = "How the metric or the ratio compares with `value`. `within`: a ratio is between 1/(1 + value) and 1 + value.";
    };
    value = mkOption {
      type = number;
      example = 1.5;
      description = "Number with which the metric or the ratio is compared.";
    };
    where = mkOption {
      type = types.attrsOf (
        types.coercedTo (types.oneOf [
          types.int
          types.bool
          types.str
        ]) lib.singleton (types.listOf level)
      );
      default = { };
      example = {
        workload = "burst";
      };
      description = "Levels of the cells that the claim is about, by factor: one or a list. A factor that is not here has all its levels.";
    };
    baseline = mkOption {
      type = types.coercedTo types.str lib.singleton (types.listOf types.str);
      default = [ ];
      example = [ "20261123T120000Z-compare" ];
      description = "Ids of sweeps of the same hive. The claim is then about the ratio to the same cell of these sweeps, of which it needs three.";
    };
  };

  benchmark =
    { config, ... }:
    {
      options = {
        matrix = mkOption {
          type = types.attrsOf (
            types.either (types.nonEmptyListOf (
              types.oneOf [
                types.int
                types.bool
                types.str
              ]
            )) (types.attrsOf types.raw)
          );
          default = { };
          example = {
            "roles.worker.count" = [
              2
              4
              8
            ];
            scheduler = [
              "kubernetes"
              "slurm"
            ];
            workload = [ "gang" ];
            cache = {
              off = [ ];
              on = [ { services.nscd.enable = true; } ];
            };
          };
          description = ''
            Factors with their levels, as in [bench.md](bench.md#factors). A cell is a choice of one level per
            factor.
          '';
        };
        exclude = mkOption {
          type = types.functionTo types.bool;
          default = _: false;
          defaultText = lib.literalExpression "cell: false";
          example = lib.literalExpression ''cell: cell.scheduler == "kubernetes" && cell.workload == "gang"'';
          description = "Function of a cell that returns whether the cell is left out.";
        };
        workloads = mkOption {
          type = types.attrsOf (types.submodule workload);
          default = { };
          example = lib.literalExpression ''{ burst.jobs = lib.jobs.null { jobs = 500; }; }'';
          description = "Workloads, by name. `null` (100 jobs that end at once) and `gang` (10 gangs of two) exist unless they are set.";
        };
        repetitions = mkOption {
          type = types.ints.positive;
          default = 6;
          description = "Number of blocks. A block is one pass over all cells.";
        };
        warmup = mkOption {
          type = types.ints.unsigned;
          default = 0;
          description = "Number of blocks before the others whose results are not used.";
        };
        seed = mkOption {
          type = types.ints.unsigned;
          default = 1;
          description = "Seed of the order of trials, and of random times of submission.";
        };
        order = mkOption {
          type = types.enum [
            "blocks"
            "cheap"
          ];
          default = "blocks";
          description = ''
            `blocks`: in each block, the order of the configurations is random, and of the workloads within each.
            `cheap`: all trials of a configuration follow each other, which saves time, and confounds the
            configuration with time.
          '';
        };
        reset = mkOption {
          type = types.enum [
            "fresh"
            "clean"
          ];
          default = "fresh";
          description = ''
            What happens before a trial. `fresh`: its machines are created again. `clean`: the jobs of earlier
            trials are removed, so trials depend on earlier ones.
          '';
        };
        pause = mkOption {
          type = duration;
          default = "5s";
          apply = seconds;
          description = "Time between the end of the deployment, or of the cleaning, and the start of the workload.";
        };
        retries = mkOption {
          type = types.ints.unsigned;
          default = 2;
          description = "How often a trial whose verdict is invalid, or that failed, is repeated at the end of its block.";
        };
        client = mkOption {
          type = types.nullOr types.str;
          default = null;
          example = "client";
          description = ''
            Role on whose first node the commands run that submit and observe jobs. Its nodes are no members of
            the cluster, and import `modules/kubernetes/client.nix`, `modules/slurm/login.nix`. null: the commands
            run on the controller or the first control plane.
          '';
        };
        quiet = {
          steal = mkOption {
            type = share;
            default = 1.0e-2;
            description = "Share of the processor time that the hypervisor of this computer may use for other machines.";
          };
          foreignCpu = mkOption {
            type = share;
            default = 5.0e-2;
            description = "Share of the processor time that programs outside of the benchmark may use.";
          };
          psiCpu = mkOption {
            type = share;
            default = 5.0e-2;
            description = "Share of the time in which a program may wait for a processor. Beyond it, a trial is suspect.";
          };
          canary = mkOption {
            type = number;
            default = 5.0e-2;
            description = "Relative change of the time of a fixed computation, before and after the trial, to that before the first trial.";
          };
          swapPages = mkOption {
            type = number;
            default = 100;
            description = "Pages per second that this computer may swap in or out.";
          };
          kernelMessages = mkOption {
            type = types.ints.unsigned;
            default = 0;
            description = "Number of messages that the kernel may log about memory that is out, tasks that hang, and failures of the hardware.";
          };
          clock = mkOption {
            type = duration;
            default = "10ms";
            apply = seconds;
            description = "Time by which the clock of this computer may be set during a trial.";
          };
          frequency = mkOption {
            type = share;
            default = 0.5;
            description = "Share of its maximum frequency that the fastest processor must have while the processors are busy. Below it, a trial is suspect.";
          };
        };
        maxBlocks = mkOption {
          type = types.ints.unsigned;
          default = 0;
          example = 18;
          description = ''
            Largest number of blocks to which a sweep may be extended. The answers of each extension spend a part of the
            allowed errors. 0: a sweep is not extended.
          '';
        };
        metrics = mkOption {
          type = types.listOf types.str;
          default = [ ];
          example = [ "throughput" ];
          description = ''
            Primary metrics. Their comparisons are corrected for their number only; all others are exploratory.
          '';
        };
        claims = mkOption {
          type = types.attrsOf (types.submodule claim);
          default = { };
          example = {
            slurm-faster = {
              metric = "throughput";
              factor = "scheduler";
              a = "slurm";
              b = "kubernetes";
              op = ">=";
              value = 1.5;
            };
            fast-enough = {
              metric = "throughput";
              op = ">=";
              value = 100;
              where.scheduler = "slurm";
            };
          };
          description = "Expectations about metrics, which are tested ([bench.md](bench.md#claims)).";
        };
      };
      config.workloads = {
        null.jobs = lib.mkDefault (jobs.null { jobs = 100; });
        gang.jobs = lib.mkDefault (
          jobs.gang {
            jobs = 10;
            size = 2;
            runtime = 1;
          }
        );
      };
    };
in
{
  options.benchmarks = mkOption {
    type = types.attrsOf (
      types.submoduleWith {
        modules = [ benchmark ];
        specialArgs.lib = lib // {
          inherit jobs;
        };
      }
    );
    default = { };
    example = {
      sizes.matrix."roles.worker.count" = [
        2
        4
      ];
    };
    description = "Benchmarks of schedulers, by name. [bench.md](bench.md) explains them.";
  };
}

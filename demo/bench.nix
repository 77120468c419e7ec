# The benchmark of demo/bench: SLURM and Kubernetes on two machines of the template `schedulers`, and Kubernetes on hollow nodes, where
# places do not limit the rate. The machines are containers of the lab. demo/bench copies this file and what it imports into one folder.
let
  lab = builtins.fromJSON (builtins.readFile ./lab.json);

  hive = import ./e2e/schedulers/hive.nix {
    nixpkgs = ./nixpkgs;
    uri = lab.uris.lxc;
    inherit (lab) poolPath;
    image = lab.dir + "/bench-image"; # a link, so that a repetition uses the image of its own computer
  };

  kubernetes = {
    image = "localhost/probe:1";
    command = [
      "/probe"
      "sleep"
      "{runtime}"
      "{job}"
    ];
  };
in
hive
// {
  meta = hive.meta // {
    description = "SLURM and Kubernetes on two processors, as `demo/bench` measures them";
  };
  cluster = hive.cluster // {
    schedulers = hive.cluster.schedulers // {
      kubernetes.modules = hive.cluster.schedulers.kubernetes.modules ++ [
        { nixbench.kubernetes.hollow.capacity.cpu = "64"; }
      ];
    };
  };

  benchmarks.demo =
    { lib, ... }:
    {
      matrix = {
        scheduler = [
          "slurm"
          "kubernetes"
        ];
        limits = [
          "default" # what users get
          "tuned"
        ];
        "roles.node.count" = [
          1
          2
        ];
        "roles.node.hollow" = [
          0
          20
        ];
        workload = [
          "burst"
          "placements"
        ];
        # A limit with a known answer: a scheduler that may send ten requests per second places ten jobs per second.
        qps = {
          unlimited = [ ];
          ten.roles.head = [
            {
              nixbench.kubernetes.scheduler.extraArgs = {
                kube-api-qps = 10;
                kube-api-burst = 10;
              };
            }
          ];
        };
      };
      # Two machines with each scheduler, and one machine that stands for 20 nodes of Kubernetes.
      exclude =
        cell:
        if cell."roles.node.hollow" == 0 then
          cell."roles.node.count" != 2 || cell.workload != "burst" || cell.qps != "unlimited"
        else
          cell."roles.node.count" != 1
          || cell.workload != "placements"
          || cell.scheduler != "kubernetes"
          || cell.qps == "ten" && cell.limits != "tuned";

      # Short jobs, ten for each processor of the nodes: the rate is what users see on machines of this size.
      workloads.burst = {
        jobs = lib.jobs.null { jobs = 40; };
        timeLimit = "3m";
        inherit kubernetes;
      };
      # Fewer jobs than places, on nodes that start and end them at once: the rate is that of the scheduler.
      workloads.placements = {
        jobs = lib.jobs.null { jobs = 200; };
        timeLimit = "3m";
        inherit kubernetes;
      };
      repetitions = 4;
      metrics = [
        "throughput"
        "bind_rate"
      ];
      claims = {
        tuned-slurm-is-faster = {
          metric = "throughput";
          factor = "limits";
          a = "tuned";
          b = "default";
          where.scheduler = "slurm";
          op = ">";
          value = 2;
        };
        ten-requests-are-ten-jobs = {
          metric = "bind_rate";
          where.qps = "ten";
          op = ">";
          value = 9.5;
        };
        ten-requests-are-not-more = {
          metric = "bind_rate";
          where.qps = "ten";
          op = "<";
          value = 10.5;
        };
        unlimited-is-faster = {
          metric = "throughput";
          factor = "qps";
          a = "unlimited";
          b = "ten";
          op = ">";
          value = 1.5;
        };
      };
      # A computer with two processors is busy during the whole trial: this does not make the trial suspect.
      quiet.psiCpu = 1;
    };
}

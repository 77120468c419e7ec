# The benchmark of demo/bench: the same jobs with SLURM and with Kubernetes, on the machines of the template `schedulers`,
# which are containers of the lab. demo/bench copies this file and what it imports into one folder.
let
  lab = builtins.fromJSON (builtins.readFile ./lab.json);

  hive = import ./e2e/schedulers/hive.nix {
    nixpkgs = ./nixpkgs;
    uri = lab.uris.lxc;
    inherit (lab) poolPath;
    image = builtins.readFile ./image;
  };
in
hive
// {
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
        "roles.node.count" = [ 2 ];
        workload = [ "burst" ];
      };
      # Short jobs, ten for each processor of the nodes: the rate is what users see on machines of this size.
      workloads.burst = {
        jobs = lib.jobs.null { jobs = 40; };
        timeLimit = "3m";
        kubernetes = {
          image = "localhost/probe:1";
          command = [
            "/probe"
            "sleep"
            "{runtime}"
            "{job}"
          ];
        };
      };
      repetitions = 6;
      metrics = [ "throughput" ];
      claims.tuned-slurm-is-faster = {
        metric = "throughput";
        factor = "limits";
        a = "tuned";
        b = "default";
        where.scheduler = "slurm";
        op = ">";
        value = 2;
      };
      # A computer with two processors is busy during the whole trial: this does not make the trial suspect.
      quiet.psiCpu = 1;
    };
}

# nixbench makes a Kubernetes cluster of two existing machines, a control plane and a worker.
{ pkgs, common }:
let
  inherit (pkgs) lib;
  inherit (common) modules operator target tests versions;
  images = import ./kubernetes-images.nix {
    inherit pkgs;
    inherit (pkgs.kubernetes) version;
  };

  # The modules of a node's system in the hive.
  nodeModules = role: [
    "${modules}/kubernetes/${role}.nix"
    "${tests}/kubernetes-node.nix"
  ];

  # The machine starts without Kubernetes. nixbench deploys `member`, then `changed`.
  machine =
    role: archives:
    { config, ... }:
    let
      member = {
        imports = nodeModules role ++ [
          "${modules}/deployment.nix"
          "${modules}/engine.nix"
          "${modules}/keys.nix"
        ];
        nixbench.kubernetes.images = archives;
      };
    in
    {
      imports = [
        target
        (versions {
          inherit member;
          changed = {
            imports = [ member ];
            environment.etc.marker.text = "changed";
          };
        })
      ];
      virtualisation = {
        memorySize = 3072;
        diskSize = 8192;
        # The machine has the programs of Kubernetes, so nixbench copies only what is missing to its store in memory.
        additionalPaths = [ config.system.build.versions.member ];
      };
    };
in
{
  name = "nixbench-kubernetes";

  nodes = {
    control = machine "control-plane" (images.controlPlane ++ images.all);
    worker = machine "worker" images.all;

    operator =
      { nodes, ... }:
      {
        imports = [
          (operator (
            lib.genAttrs [ "member" "changed" ] (version: {
              nodes.control = nodeModules "control-plane";
              nodes.worker = nodeModules "worker";
              systems.control = nodes.control.system.build.versions.${version};
              systems.worker = nodes.worker.system.build.versions.${version};
            })
          ))
        ];
      };
  };

  testScript =
    { nodes, ... }:
    ''
      ${common.script}
      assert "${nodes.control.networking.primaryIPAddress}" == "192.168.1.1"
      assert "${nodes.worker.networking.primaryIPAddress}" == "192.168.1.3"
      authorize(control, worker)


      def check_cluster() -> None:
          nodes = control.succeed("kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes --no-headers").splitlines()
          assert len(nodes) == 2 and all(node.split()[1] == "Ready" for node in nodes), nodes
          nixbench("check")


      with subtest("a cluster of two nodes"):
          use_hive("member")
          nixbench("apply --yes --accept-new-host-keys")
          check_cluster()
          output = nixbench("apply --yes")
          assert "2 unchanged" in output, output

      with subtest("a change drains each node, and the cluster works again"):
          use_hive("changed")
          nixbench("apply --yes")
          for machine in [control, worker]:
              machine.succeed("grep -x changed /etc/marker")
          check_cluster()
    '';
}

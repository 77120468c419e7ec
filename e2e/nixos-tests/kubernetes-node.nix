# Settings of the cluster's nodes: for the systems that are built before the test, and for the hive that nixbench
# evaluates during the test.
{
  config,
  lib,
  name,
  ...
}:
let
  # The test driver numbers the machines in the order of their names.
  addresses = {
    control = "192.168.1.1";
    worker = "192.168.1.3";
  };
  # The systems contain the hash of the CA's key, so a fixed CA is used. It is for this test only.
  given = file: {
    generated = lib.mkForce null;
    keyFile = file;
  };
in
{
  nixbench.node = {
    inherit name;
    address = addresses.${name};
  };
  nixbench.kubernetes = {
    endpoint.address = addresses.control;
    controlPlanes = [ addresses.control ];
    caHash = lib.fileContents ./kubernetes-ca.hash;
    nodeCidr = "192.168.1.0/24";
    podCidr = "10.244.0.0/16";
    containerRuntime.pauseImage = "registry.k8s.io/pause:test";
    settings = {
      # Without a registry, kubeadm cannot pull images. They are loaded before.
      init.nodeRegistration.imagePullPolicy = "Never";
      join.nodeRegistration.imagePullPolicy = "Never";
      cluster = {
        dns.imageTag = "test";
        etcd.local.imageTag = "test";
      };
    };
  };
  deployment.keys = lib.mkIf (config.nixbench.kubernetes.role == "control-plane") {
    kubernetes-ca-crt = given ./kubernetes-ca.crt;
    kubernetes-ca-key = given ./kubernetes-ca.key;
  };
}

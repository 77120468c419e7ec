# Archives of the images of a Kubernetes cluster, made of the programs of nixpkgs, since a test has no registry.
{ pkgs, version }:
let
  inherit (pkgs) lib;

  # An image with the given programs in /bin.
  image =
    {
      name,
      tag ? "test",
      programs,
      entrypoint ? null,
      extraCommands ? "",
    }:
    pkgs.dockerTools.buildImage {
      name = "registry.k8s.io/${name}";
      inherit tag extraCommands;
      copyToRoot = pkgs.buildEnv {
        name = "${baseNameOf name}-root";
        paths = programs;
        pathsToLink = [ "/bin" ];
      };
      config = {
        Env = [ "PATH=/bin" ];
      }
      // lib.optionalAttrs (entrypoint != null) {
        Entrypoint = [ entrypoint ];
      };
    };

  # One program of Kubernetes: the package with all of them is too large for each image.
  program =
    name:
    pkgs.runCommand name { } ''
      install -D ${pkgs.kubernetes}/bin/${name} $out/bin/${name}
    '';

  component = name: {
    inherit name;
    tag = "v${version}";
    programs = [ (program name) ];
  };
in
{
  controlPlane =
    map image [
      (component "kube-apiserver")
      (component "kube-controller-manager")
      (component "kube-scheduler")
      {
        name = "etcd";
        programs = [ pkgs.etcd ];
      }
    ];

  all = map image [
    {
      name = "pause";
      programs = [ pkgs.kubernetes.pause ];
      entrypoint = "/bin/pause";
    }
    {
      name = "coredns/coredns";
      programs = [ pkgs.coredns ];
      entrypoint = "/bin/coredns";
    }
    {
      name = "kube-proxy";
      tag = "v${version}";
      programs = [
        (program "kube-proxy")
        pkgs.conntrack-tools
        pkgs.iptables
        pkgs.nftables
        pkgs.kmod
      ];
      # kubeadm's manifest names this path.
      extraCommands = ''
        mkdir -p usr/local/bin
        ln -s /bin/kube-proxy usr/local/bin/kube-proxy
      '';
    }
  ];
}

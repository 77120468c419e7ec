# Checks of Kubernetes objects that the hive adds: `nixbench apply` waits until these objects are as required, and `nixbench
# check` checks them again.
{ lib, ... }:
let
  inherit (lib) mkOption types;
  check.options = {
    resource = mkOption {
      type = types.strMatching "[a-z0-9.-]+/[a-z0-9.:-]+" // {
        description = "kind and name of an object, such as deployment.apps/gang";
      };
      example = "deployment.apps/gang";
      description = "Kind and name of the object. If two APIs have the kind, add the group.";
    };
    namespace = mkOption {
      type = types.nullOr (types.strMatching "[a-z0-9-]+");
      default = null;
      example = "kube-system";
      description = "Namespace of the object, or null if its kind has no namespaces.";
    };
    condition = mkOption {
      type = types.nullOr (types.strMatching "[A-Za-z0-9./_-]+");
      default = null;
      example = "Available";
      description = "Condition in the status of the object that must be true. With null, the object must exist.";
    };
  };
in
{
  options.nixbench.kubernetes.checks = mkOption {
    type = types.attrsOf (types.submodule check);
    default = { };
    example = {
      ingress = {
        resource = "deployment.apps/ingress-nginx";
        namespace = "ingress";
        condition = "Available";
      };
    };
    description = ''
      Objects that the cluster must have; only control planes use this option. The name of a check lets another
      module change the check.
    '';
  };
}

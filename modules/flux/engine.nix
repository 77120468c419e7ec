# Sets `deployment.engine`, and the settings that nixbench uses when it checks and changes the Flux instance.
{
  config,
  lib,
  options,
  ...
}:
let
  cfg = config.nixbench.flux;
in
{
  config = lib.optionalAttrs (options ? deployment.engine) {
    deployment.engine = lib.mkIf (cfg.role != null) {
      kind = "flux";
      inherit (cfg) role;
      oneByOne = cfg.role == "leader";
      order = if cfg.role == "leader" then 10 else 20;
      settings = {
        inherit (cfg) drainTimeout;
        inherit (cfg.package) version;
      };
    };
  };
}

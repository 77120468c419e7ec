# nixbench deploys to two existing machines: a first system, a change, a rollback, a change that cuts the network.
{ common, ... }:
let
  inherit (common) operator target versions;

  marker = text: { environment.etc.marker.text = text; };
  machine = {
    imports = [
      target
      (versions {
        first = marker "first";
        second = marker "second";
        # A configuration that blocks logins, as by a mistake in the firewall.
        cut = {
          imports = [ (marker "cut") ];
          services.openssh.openFirewall = false;
        };
      })
    ];
  };
in
{
  name = "nixbench-existing-machines";

  nodes = {
    web = machine;
    db = machine;

    operator =
      { lib, nodes, ... }:
      {
        imports = [
          (operator (
            lib.genAttrs [ "first" "second" "cut" ] (version: {
              nodes.web = [ ];
              nodes.db = [ ];
              systems.web = nodes.web.system.build.versions.${version};
              systems.db = nodes.db.system.build.versions.${version};
            })
          ))
        ];
      };
  };

  testScript =
    { nodes, ... }:
    let
      inherit (nodes.web.system.build) versions;
    in
    ''
      ${common.script}
      authorize(web, db)

      with subtest("the first deployment"):
          use_hive("first")
          nixbench("apply --yes --accept-new-host-keys")
          for machine in [web, db]:
              machine.succeed("grep -x first /etc/marker")
          assert current_system(web) == boot_default(web) == "${versions.first}"
          assert "unchanged" in nixbench("apply --yes")

      with subtest("a change"):
          use_hive("second")
          assert "switch" in nixbench("plan")
          nixbench("apply --yes")
          for machine in [web, db]:
              machine.succeed("grep -x second /etc/marker")
          assert current_system(web) == boot_default(web) == "${versions.second}"

      with subtest("a rollback, and the change again"):
          nixbench("status --check")
          nixbench("rollback --yes")
          for machine in [web, db]:
              machine.succeed("grep -x first /etc/marker")
          assert current_system(web) == boot_default(web) == "${versions.first}"
          nixbench("apply --yes")
          web.succeed("grep -x second /etc/marker")

      with subtest("a change that cuts the network is rolled back"):
          use_hive("cut")
          output = nixbench("apply --yes --on web --timeout confirm=20s", code=8)
          assert "web" in output
          web.wait_until_succeeds("grep -x second /etc/marker", timeout=120)
          assert current_system(web) == boot_default(web) == "${versions.second}"
          operator.succeed("ssh -o StrictHostKeyChecking=no web true")
          db.succeed("grep -x second /etc/marker")
    '';
}

package nixeval

import (
	"strings"
	"testing"
)

func p[T any](v T) *T { return &v }

// The survey finds options that have the right type but invalid values. Only their own unit is
// broken.
func TestDeploymentOptionsAreChecked(t *testing.T) {
	good := Key{Name: "k", Text: NewSecret("x"), DestDir: "/run/keys", User: "root", Group: "root", Permissions: "0600", UploadAt: "pre-activation"}
	key := func(name string, change func(*Key)) Deployment {
		k := good
		k.Name = name
		change(&k)
		return Deployment{Keys: map[string]Key{name: k}}
	}
	health := func(name string, change func(*HealthCheck)) Deployment {
		c := HealthCheck{From: FromNode, Timeout: 30, Interval: 1}
		change(&c)
		return Deployment{HealthChecks: map[string]HealthCheck{name: c}}
	}
	long := strings.Repeat("x", 300)
	for want, d := range map[string]Deployment{
		`deployment.targetHost: "bad host;x" is not a host name`:                                 {TargetHosts: TargetHosts{"ok", "bad host;x"}},
		`deployment.targetHost: "" is not`:                                                       {TargetHosts: TargetHosts{"ok", ""}},
		`is longer than 253 bytes`:                                                               {TargetHosts: TargetHosts{"ok", long}},
		`deployment.targetHost: "a\u202eb" has the character U+202E`:                             {TargetHosts: TargetHosts{"ok", "a\u202eb"}},
		`deployment.targetUser: "-oProxyCommand=x" is not a user name`:                           {TargetUser: p("-oProxyCommand=x")},
		`deployment.targetPort: 0 is not a port`:                                                 {TargetPort: p(0)},
		`deployment.targetPort: 99999 is not a port`:                                             {TargetPort: p(99999)},
		`deployment.tags: "a\u2066" has the character U+2066`:                                    {Tags: []string{"a\u2066"}},
		`deployment.keys.a/b: name: "a/b" is not a file name; use destDir`:                       key("a/b", func(*Key) {}),
		`deployment.keys."": name: "" is not a file name; use destDir`:                           key("", func(*Key) {}),
		`deployment.keys..: name: "." is not a file name`:                                        key(".", func(*Key) {}),
		`deployment.keys...: name: ".." is not a file name`:                                      key("..", func(*Key) {}),
		`deployment.keys."a\u202eb": "a\u202eb" has the character U+202E`:                        key("a\u202eb", func(*Key) {}),
		`deployment.keys."a\x1b[31m": "a\x1b[31m" has the character U+001B`:                      key("a\x1b[31m", func(*Key) {}),
		`deployment.keys.k: permissions: "4755" is not an octal mode`:                            key("k", func(k *Key) { k.Permissions = "4755" }),
		`deployment.keys.k: permissions: "2640" is not an octal mode`:                            key("k", func(k *Key) { k.Permissions = "2640" }),
		`deployment.keys.k: permissions: "rw" is not an octal mode`:                              key("k", func(k *Key) { k.Permissions = "rw" }),
		`deployment.keys.k: user: "a:b" is not a name or number`:                                 key("k", func(k *Key) { k.User = "a:b" }),
		`deployment.keys.k: group: "a\u200bb" has the character U+200B`:                          key("k", func(k *Key) { k.Group = "a\u200bb" }),
		`deployment.keys.k: 0 of text, keyFile, keyCommand and generated are set`:                key("k", func(k *Key) { k.Text = nil }),
		`deployment.keys.k: destDir: "/run/\u202ekeys/k" has the character U+202E`:               key("k", func(k *Key) { k.DestDir = "/run/\u202ekeys" }),
		`deployment.keys.` + long + `: name: "xxxxxxxxxxxxxxxxxxxx"… is longer than 200`:         key(long, func(*Key) {}),
		`deployment.healthChecks.c: 0 of http, tcp and command are set; set exactly one of them`: health("c", func(*HealthCheck) {}),
		`deployment.healthChecks.c: 2 of http, tcp and command are set`:                          health("c", func(c *HealthCheck) { c.TCP, c.Command = p(":80"), []string{"true"} }),
		`deployment.healthChecks.c: http: the value is not a URL, such as http://`:               health("c", func(c *HealthCheck) { c.HTTP = p("localhost:80") }),
		`deployment.healthChecks.c: http: the value is not a URL`:                                health("c", func(c *HealthCheck) { c.HTTP = p("ftp://a/") }),
		`deployment.healthChecks.c: http: the value is not a URL, such as http://1`:              health("c", func(c *HealthCheck) { c.HTTP = p("http:///x") }),
		`deployment.healthChecks.c: http: the value is longer than 2000 bytes, or has a`:         health("c", func(c *HealthCheck) { c.HTTP = p("http://a/\u202e") }),
		`deployment.healthChecks.c: tcp: "db" is not HOST:PORT, such as 127.0.0.1:5432`:          health("c", func(c *HealthCheck) { c.TCP = p("db") }),
		`deployment.healthChecks.c: tcp: "db:0" is not HOST:PORT`:                                health("c", func(c *HealthCheck) { c.TCP = p("db:0") }),
		`deployment.healthChecks.c: from: "there" is not node or here`:                           health("c", func(c *HealthCheck) { c.TCP, c.From = p("db:1"), "there" }),
		`deployment.healthChecks.c: timeout: 0 is not a number of seconds from 1`:                health("c", func(c *HealthCheck) { c.TCP, c.Timeout = p("db:1"), 0 }),
		`deployment.healthChecks.c: interval: 9000 is not a number of seconds from 1`:            health("c", func(c *HealthCheck) { c.TCP, c.Interval = p("db:1"), 9000 }),
		`deployment.healthChecks."a\u202eb": "a\u202eb" has the character U+202E`:                health("a\u202eb", func(c *HealthCheck) { c.TCP = p("db:1") }),
	} {
		h, err := newHive(surveyResult{Named: []string{"a", "b"}, Deployments: map[string]Deployment{"a": d, "b": {Keys: map[string]Key{"k": good}}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e := h.Broken["a"]; e == nil || !strings.Contains(e.Error(), want) {
			t.Errorf("got  %v\nwant %s", e, want)
		}
		if e := h.Broken["b"]; e != nil {
			t.Errorf("b: %v", e)
		}
	}
	for _, user := range []string{`alice\`, `\-x`, `CORP\\alice`, `CORP\$alice`} {
		if err := (Deployment{TargetUser: p(user)}).checkOptions(); err == nil {
			t.Errorf("targetUser %s was taken", user)
		}
	}
	if err := (Deployment{TargetUser: p(`CORP\alice`)}).checkOptions(); err != nil {
		t.Error(err)
	}
	fine := Deployment{TargetHosts: TargetHosts{"ok", "fe80::1%eth0"}, TargetUser: p("DOM\u00c4NE.user@corp"), TargetPort: p(65535), Tags: []string{"größe", "a b"},
		Keys: map[string]Key{"größe": good}, HealthChecks: map[string]HealthCheck{
			"a": {HTTP: p("https://[::1]:8443/healthz?x=1"), From: FromNode, Timeout: 1, Interval: 1}, "b": {HTTP: p("http://:80"), From: FromHere, Timeout: 3600, Interval: 3600},
			"c": {TCP: p("[::1]:1"), From: FromNode, Timeout: 1, Interval: 1}, "d": {TCP: p(":65535"), From: FromNode, Timeout: 1, Interval: 1},
			"e": {Command: []string{"sh", "-c", "a\nb"}, From: FromNode, Timeout: 1, Interval: 1},
		}}
	if err := fine.checkOptions(); err != nil {
		t.Error(err)
	}
}

func TestNamesAreChecked(t *testing.T) {
	long := strings.Repeat("n", 250)
	for want, s := range map[string]surveyResult{
		`node "web\u202e1" has the character U+202E`:                 {Named: []string{"web\u202e1"}},
		`node "web\u200b" has the character U+200B`:                  {Named: []string{"web\u200b"}},
		`node "nnnnnnnnnnnnnnnnnnnn"… is longer than 200 bytes`:      {Named: []string{long}},
		`role: the node "nnnnnnnnnnnnnnnnnnnn"… is longer than 63`:   {Roles: map[string]Role{long[:62]: {Count: 10}}},
		`the cluster's name "nnnnnnnnnnnnnnnnnnnn"… is longer than `: {Meta: Meta{Name: long}},
	} {
		if _, err := newHive(s, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := newHive(surveyResult{Named: []string{"größe-1"}, Roles: map[string]Role{long[:61]: {Count: 9}}}, nil); err != nil {
		t.Error(err)
	}
}

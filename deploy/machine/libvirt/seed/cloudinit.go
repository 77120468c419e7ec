package seed

import (
	"encoding/base64"
	"encoding/json"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// CloudInit returns a NoCloud seed disk: an ISO 9660 file system with the label cidata.
func CloudInit(node string, i provider.Identity) ([]byte, error) {
	type writeFile struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Encoding    string `json:"encoding"`
		Content     string `json:"content"`
	}
	user := struct {
		Hostname         string            `json:"hostname"`
		PreserveHostname bool              `json:"preserve_hostname"`
		DisableRoot      bool              `json:"disable_root"`
		Users            []map[string]any  `json:"users,omitempty"`
		SSHDeleteKeys    bool              `json:"ssh_deletekeys"`
		SSHKeys          map[string]string `json:"ssh_keys,omitempty"`
		WriteFiles       []writeFile       `json:"write_files,omitempty"`
	}{Hostname: node}
	if len(i.AuthorizedKeys) > 0 {
		user.Users = []map[string]any{{"name": "root", "lock_passwd": true, "ssh_authorized_keys": i.AuthorizedKeys}}
	}
	if len(i.HostKey) > 0 {
		user.SSHDeleteKeys = true
		user.SSHKeys = map[string]string{"ed25519_private": string(i.HostKey)}
	}
	if len(i.Node) > 0 {
		user.WriteFiles = []writeFile{{NodePath, "0644", "b64", base64.StdEncoding.EncodeToString(i.Node)}}
	}
	// cloud-init reads YAML, of which JSON is a subset.
	userData, err := json.Marshal(user)
	if err != nil {
		return nil, err
	}
	// cloud-init runs once for each instance-id, so a machine always has the same id.
	metaData, err := json.Marshal(map[string]string{"instance-id": "nixbench-" + node, "local-hostname": node})
	if err != nil {
		return nil, err
	}
	return makeISO("cidata", []File{
		{"META-DATA", append(metaData, '\n')},
		{"USER-DATA", append([]byte("#cloud-config\n"), append(userData, '\n')...)},
	})
}

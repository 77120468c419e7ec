package nixeval

import "encoding/json"

// TargetHosts are the hosts of deployment.targetHost, in the order in which they are tried. The option is null, a string or a list
// of strings, and the JSON of this type is the same. TargetHosts is nil if the option is null.
type TargetHosts []string

// UnmarshalJSON decodes the value of the option.
func (t *TargetHosts) UnmarshalJSON(data []byte) error {
	var one *string
	if err := json.Unmarshal(data, &one); err != nil {
		return json.Unmarshal(data, (*[]string)(t))
	}
	*t = nil
	if one != nil {
		*t = TargetHosts{*one}
	}
	return nil
}

// MarshalJSON encodes a single host as a string, several hosts as a list, and no host as null.
func (t TargetHosts) MarshalJSON() ([]byte, error) {
	switch len(t) {
	case 0:
		return []byte("null"), nil
	case 1:
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

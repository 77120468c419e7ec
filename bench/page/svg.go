package page

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"html/template"
	"regexp"
	"strings"
)

// drawing is the input of the template of a file with one drawing.
type drawing struct {
	plot
	Height  int
	Table   string // the drawn values as CSV
	Style   template.CSS
	Entries []entry
}

type entry struct {
	series
	Y int
}

// drawingStyle is the style of a file with one drawing. Its colours are plain, because programs that convert drawings know no variables.
const drawingStyle = `.c0{color:#2f7fd1}.c1{color:#e2711d}.c2{color:#2f8f5b}.c3{color:#b0529f}.c4{color:#6f5bd0}.c5{color:#a07800}.c6{color:#1f8f97}.c7{color:#c0504d}
.line{stroke:currentColor;stroke-width:2;fill:none;vector-effect:non-scaling-stroke}.again{stroke-dasharray:5 4}
circle{fill:currentColor;stroke:currentColor}.trial{r:2px;fill-opacity:.35}.hollow{fill:none}text{fill:#333}.grid{stroke:#ddd}`

// Drawings returns each drawing of a page as an SVG file that needs no other files, by the name of the file. The element metadata of a
// drawing has its values as CSV.
func Drawings(in Input) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, w := range newView(in).Workloads {
		for _, p := range w.Plots {
			d := drawing{plot: p, Height: 390 + 20*len(p.Legend), Style: drawingStyle}
			var table strings.Builder
			if err := csv.NewWriter(&table).WriteAll(p.Data); err != nil {
				return nil, err
			}
			d.Table = table.String()
			for i, s := range p.Legend {
				d.Entries = append(d.Entries, entry{s, 390 + 20*i})
			}
			var b bytes.Buffer
			if err := execute(&b, plotHTML+`{{template "drawing" .}}`, d); err != nil {
				return nil, err
			}
			name := strings.Trim(notInNames.ReplaceAllString(w.Name+"-"+p.Title, "-"), "-")
			for n, first := 2, name; out[name+".svg"] != nil; n++ {
				name = fmt.Sprintf("%s-%d", first, n)
			}
			out[name+".svg"] = b.Bytes()
		}
	}
	return out, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.=]+`)

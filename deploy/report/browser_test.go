package report

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is headless Chromium, or the test is skipped. As root it needs to be without its
// sandbox; it is shown nothing but pages of ours.
type browser string

func findBrowser(t *testing.T) browser {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return browser(path)
		}
	}
	if os.Getenv("NIXBENCH_E2E") != "" {
		t.Fatal("chromium is not installed; e2e/lab/lab install does it")
	}
	t.Skip("chromium is not installed; e2e/lab/lab install does it")
	return ""
}

// seen is the result of a page in a browser.
type seen struct {
	shot     image.Image
	console  []string // errors of the browser
	requests []string
}

// minWindow is the width of Chromium's narrowest window. A narrower page is shown in a frame of this width.
const minWindow = 500

func (b browser) show(t *testing.T, page string, width, height int, flags ...string) seen {
	t.Helper()
	address := "/run.html"
	if width < minWindow {
		address = "/frame.html"
	}
	var mu sync.Mutex
	var s seen
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/frame.html" {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><meta name="color-scheme" content="light dark"><body style="margin: 0"><iframe style="border: 0" width="%d" height="%d" src="/run.html"></iframe>`, width, height)
			return
		}
		s.requests = append(s.requests, r.URL.String())
		if r.URL.Path == "/run.html" {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, page)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "shot.png")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--enable-logging=stderr", "--user-data-dir=" + t.TempDir(),
		fmt.Sprintf("--window-size=%d,%d", max(width, minWindow), height), "--screenshot=" + file,
	}, flags...)
	cmd := exec.CommandContext(ctx, string(b), append(args, server.URL+address)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", b, err, log.String())
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			s.console = append(s.console, strings.TrimSpace(line))
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if s.shot, err = png.Decode(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	// To look at: NIXBENCH_SHOTS=folder.
	if dir := os.Getenv("NIXBENCH_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+".png"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return s
}

// overflow returns by how many pixels a page is wider than a frame of this width. Chromium's own windows are not that narrow.
func (b browser) overflow(t *testing.T, page string, width int) int {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if r.URL.Path == "/run.html" {
			fmt.Fprint(w, page)
			return
		}
		fmt.Fprintf(w, `<iframe id="f" width="%d" height="800" src="/run.html"></iframe><p id="p"></p><script>onload = () => {
			const d = document.getElementById("f").contentDocument;
			for (const e of d.querySelectorAll("details")) e.open = true;
			document.getElementById("p").textContent = "overflow=" + (d.documentElement.scrollWidth - d.documentElement.clientWidth) + ";" }</script>`, width)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, string(b), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--dump-dom", server.URL+"/").Output()
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	_, text, _ := strings.Cut(string(out), ">overflow=")
	var pixels int
	if _, err := fmt.Sscanf(text, "%d;", &pixels); err != nil {
		t.Fatalf("the width was not measured: %v\n%s", err, out)
	}
	return pixels
}

func TestNoOverflow(t *testing.T) {
	b := findBrowser(t)
	story := cluster()
	long := strings.Repeat("longname", 7) + "-worker" // 63 characters, as many as a host name may have
	for i := range story.nodes {
		story.nodes[i].Node = strings.Replace(story.nodes[i].Node, "web-2", long, 1)
	}
	for i := range story.lines {
		story.lines[i] = strings.Replace(story.lines[i], "web-2", long, 1)
	}
	story.changes = strings.Replace(story.changes, "web-2", long, 1)
	page := story.page(t)
	for _, width := range []int{320, 400, 700} {
		if got := b.overflow(t, page, width); got != 0 {
			t.Errorf("the page is %d pixels too wide for %d", got, width)
		}
	}
	wide := strings.Replace(page, "<main>", `<main><svg width="2000" height="5"></svg>`, 1)
	if got := b.overflow(t, wide, 400); got < 1000 {
		t.Errorf("control: a page that is too wide overflows by %d pixels", got)
	}
}

// coloursOf returns the number of pixels of each colour.
func coloursOf(img image.Image) map[color.RGBA]int {
	out := map[color.RGBA]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := img.At(x, y).RGBA()
			out[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(bl >> 8), 255}]++
		}
	}
	return out
}

func TestInABrowser(t *testing.T) {
	b := findBrowser(t)
	page := cluster().page(t)
	type scheme struct {
		flags  []string
		ground color.RGBA
		bars   []color.RGBA // activate, copy, evaluate
	}
	light := scheme{nil, color.RGBA{0xf6, 0xf7, 0xf9, 255}, []color.RGBA{{0xe2, 0x71, 0x1d, 255}, {0x2f, 0x7f, 0xd1, 255}, {0x6f, 0x5b, 0xd0, 255}}}
	dark := scheme{[]string{"--blink-settings=preferredColorScheme=0"}, color.RGBA{0x12, 0x15, 0x1b, 255},
		[]color.RGBA{{0xf0, 0x8c, 0x3e, 255}, {0x58, 0xa6, 0xf0, 255}, {0x9a, 0x8b, 0xf0, 255}}}
	type view struct {
		name          string
		page          string
		width, height int
		scheme        scheme
	}
	views := []view{
		{"hostile", hostileStory().page(t), 1100, 1600, light},
		{"narrow", page, 400, 3200, light},
		{"wide", page, 1400, 1800, dark},
	}
	for _, c := range views {
		t.Run(c.name, func(t *testing.T) {
			s := b.show(t, c.page, c.width, c.height, c.scheme.flags...)
			if len(s.console) > 0 {
				t.Errorf("the console says %q", s.console)
			}
			if len(s.requests) != 1 {
				t.Errorf("it asked for %q", s.requests)
			}
			pixels := coloursOf(s.shot)
			if pixels[c.scheme.ground] < 1000 || len(pixels) < 50 {
				t.Errorf("%d colours, %d pixels of the ground: the page is not drawn", len(pixels), pixels[c.scheme.ground])
			}
			for _, bar := range c.scheme.bars {
				if pixels[bar] < 100 {
					t.Errorf("%d pixels have the colour %v of a bar", pixels[bar], bar)
				}
			}
		})
	}

	// A page that loads other files is detected: the checks above can fail.
	t.Run("control", func(t *testing.T) {
		page := strings.Replace(page, "<main>", `<main><img src="https://evil.example/x.png"><script>console.error("ran")</script>`, 1)
		if s := b.show(t, page, 800, 600); len(s.console) < 2 {
			t.Errorf("the console says only %q", s.console)
		}
	})
}

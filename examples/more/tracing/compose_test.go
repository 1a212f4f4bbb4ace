package main

import (
	"net/url"
	"os"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The compose file publishes the ports that the program uses, and only to this machine. So does
// the configuration for a Jaeger without Docker.
func TestCompose(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Image string
			Ports []string
		}
	}
	var jaeger struct {
		Extensions struct {
			Query struct {
				HTTP struct{ Endpoint string }
			} `yaml:"jaeger_query"`
		}
		Receivers struct {
			OTLP struct {
				Protocols struct {
					HTTP struct{ Endpoint string }
				}
			}
		}
	}
	for file, into := range map[string]any{"compose.yaml": &compose, "jaeger.yaml": &jaeger} {
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	service := compose.Services["jaeger"]
	if len(compose.Services) != 1 || !regexp.MustCompile(`^jaegertracing/jaeger:2\.\d+\.\d+$`).MatchString(service.Image) {
		t.Errorf("want a Jaeger of one version, not %+v", compose.Services)
	}
	for address, endpoint := range map[string]string{
		defaultEndpoint: jaeger.Receivers.OTLP.Protocols.HTTP.Endpoint, defaultQuery: jaeger.Extensions.Query.HTTP.Endpoint,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if want := "127.0.0.1:" + u.Port() + ":" + u.Port(); !slices.Contains(service.Ports, want) {
			t.Errorf("compose.yaml publishes %q, and not %s", service.Ports, want)
		}
		if want := "127.0.0.1:" + u.Port(); endpoint != want {
			t.Errorf("jaeger.yaml has %q, want %s", endpoint, want)
		}
	}
}

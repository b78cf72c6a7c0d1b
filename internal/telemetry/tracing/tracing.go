// Package tracing sends the steps of requests to a collector of OpenTelemetry.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options say where to and how much.
type Options struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, such as
	// http://127.0.0.1:4318.
	Endpoint string
	// Sample is the share of the requests that are traced, 0 to 1.
	Sample float64
	// TrustParent has a caller who says that his request is traced believed.
	TrustParent bool
	// Replica and Version are told with every trace.
	Replica, Version string
}

// Tracing sends what it was given in the background: what a collector does not take in
// time is dropped, and nobody waits for it.
type Tracing struct{ provider *sdk.TracerProvider }

// Open does not wait for the collector.
func Open(ctx context.Context, o Options) (*Tracing, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(tracesOf(o.Endpoint)))
	if err != nil {
		return nil, fmt.Errorf("make a sender of traces: %w", err)
	}
	return &Tracing{sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithBatchTimeout(time.Second)),
		sdk.WithSampler(sampler(o)),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "stockd"), attribute.String("service.instance.id", o.Replica),
			attribute.String("service.version", o.Version),
		)),
	)}, nil
}

// tracesOf is where a collector takes traces.
func tracesOf(endpoint string) string {
	for len(endpoint) > 0 && endpoint[len(endpoint)-1] == '/' {
		endpoint = endpoint[:len(endpoint)-1]
	}
	return endpoint + "/v1/traces"
}

// sampler decides which requests are traced. A caller who says that his is not is
// always believed; that it is, anybody can say.
func sampler(o Options) sdk.Sampler {
	share := sdk.TraceIDRatioBased(o.Sample)
	remote := share
	if o.TrustParent {
		remote = sdk.AlwaysSample()
	}
	return sdk.ParentBased(share, sdk.WithRemoteParentSampled(remote))
}

// Tracer begins the traces of requests.
func (t *Tracing) Tracer() trace.Tracer { return t.provider.Tracer("github.com/stockd/stockd") }

// closeWithin bounds the sending of what is left.
const closeWithin = 3 * time.Second

// Close sends what is left, for a bounded time.
func (t *Tracing) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}

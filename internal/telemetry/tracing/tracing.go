// Package tracing exports the spans of requests to an OpenTelemetry collector.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options configure the export.
type Options struct {
	// Endpoint is the URL of a collector that accepts OTLP over HTTP, such as
	// http://127.0.0.1:4318; empty: nothing is sent.
	Endpoint string
	// Local receives the spans as well, and samples them where nothing is sent; or nil.
	Local Local
	// Sample is the share of traced requests, 0 to 1.
	Sample float64
	// TrustParent honors the caller's sampling decision.
	TrustParent bool
	// Replica and Version identify the service in every trace.
	Replica, Version string
}

// Local receives spans within this process.
type Local interface {
	sdk.Sampler
	sdk.SpanProcessor
}

// Tracing exports spans in the background, and drops those that the collector does not accept in
// time. No request waits for it.
type Tracing struct{ provider *sdk.TracerProvider }

// Open does not wait for the collector.
func Open(ctx context.Context, o Options) (*Tracing, error) {
	options := []sdk.TracerProviderOption{
		sdk.WithSampler(sampler(o)),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "stockd"), attribute.String("service.instance.id", o.Replica),
			attribute.String("service.version", o.Version),
		)),
	}
	if o.Endpoint != "" {
		exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimRight(o.Endpoint, "/")+"/v1/traces"))
		if err != nil {
			return nil, fmt.Errorf("make trace exporter: %w", err)
		}
		options = append(options, sdk.WithBatcher(exporter, sdk.WithBatchTimeout(time.Second)))
	}
	if o.Local != nil {
		options = append(options, sdk.WithSpanProcessor(o.Local))
	}
	return &Tracing{sdk.NewTracerProvider(options...)}, nil
}

// sampler decides which requests are traced. It always honors a caller that does not sample; one
// that samples may be any client.
func sampler(o Options) sdk.Sampler {
	if o.Endpoint == "" && o.Local != nil {
		return sdk.ParentBased(o.Local, sdk.WithRemoteParentSampled(o.Local), sdk.WithRemoteParentNotSampled(o.Local))
	}
	share := sdk.TraceIDRatioBased(o.Sample)
	remote := share
	if o.TrustParent {
		remote = sdk.AlwaysSample()
	}
	return sdk.ParentBased(share, sdk.WithRemoteParentSampled(remote))
}

// Tracer starts the traces of requests.
func (t *Tracing) Tracer() trace.Tracer { return t.provider.Tracer("github.com/stockd/stockd") }

// closeTimeout limits the export of remaining spans.
const closeTimeout = 3 * time.Second

// Close exports the remaining spans, for a bounded time.
func (t *Tracing) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("export the last traces: %w", err)
	}
	return nil
}

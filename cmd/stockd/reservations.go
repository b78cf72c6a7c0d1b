package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/pkg/client"
)

func reservationsCommand() *cobra.Command {
	var admin cli.Admin
	var reference string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "reservations",
		Short: "Show, confirm, release or extend a reservation",
		Example: "  stockd reservations show 0198f0c2-… --token-file admin.token\n" +
			"  stockd reservations confirm 0198f0c2-… --payment-reference pay-17 --token-file admin.token",
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError{Err: errors.New("say what: stockd reservations show, confirm, release or extend")}
		},
	}
	admin.AddFlags(cmd.PersistentFlags(), configured("STOCKD_ADMIN_LISTEN", "127.0.0.1:8081"))
	confirm := stepCommand(&admin, "confirm", "Make an order of a reservation that is paid", " --payment-reference pay-17",
		func(ctx context.Context, c client.Client, id string) (client.Reservation, error) {
			if reference == "" {
				return client.Reservation{}, cli.UsageError{Err: errors.New("--payment-reference must name the payment")}
			}
			return c.Confirm(ctx, id, reference)
		})
	confirm.Flags().StringVar(&reference, "payment-reference", "", "payment that the reservation is confirmed by; it confirms no other")
	extend := stepCommand(&admin, "extend", "Hold a reservation for longer", " --ttl 5m",
		func(ctx context.Context, c client.Client, id string) (client.Reservation, error) {
			if ttl < time.Second || ttl%time.Second != 0 {
				return client.Reservation{}, cli.UsageError{Err: errors.New("--ttl must be whole seconds, and at least 1s")}
			}
			return c.Extend(ctx, id, ttl)
		})
	extend.Flags().DurationVar(&ttl, "ttl", time.Minute, "how long from now on, in whole seconds; never shorter than it is held anyway, and no longer than reserve.longest in all")
	cmd.AddCommand(
		stepCommand(&admin, "show", "Show a reservation", "", func(ctx context.Context, c client.Client, id string) (client.Reservation, error) {
			return c.Reservation(ctx, id)
		}),
		confirm,
		stepCommand(&admin, "release", "Give the units of a reservation back", "", func(ctx context.Context, c client.Client, id string) (client.Reservation, error) {
			return c.Release(ctx, id)
		}),
		extend,
	)
	return cmd
}

func stepCommand(admin *cli.Admin, name, short, more string, do func(context.Context, client.Client, string) (client.Reservation, error)) *cobra.Command {
	line := "  stockd reservations " + name + " 0198f0c2-…" + more + " --token-file admin.token"
	return admin.Command(&cobra.Command{
		Use:     name + " RESERVATION",
		Short:   short,
		Example: line + "\n" + line + " --admin-url https://admin.shop.example --ca-file ca.pem",
		Args:    oneArg("RESERVATION"),
	}, func(cmd *cobra.Command, c client.Client, args []string) error {
		r, err := do(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		paid := ""
		if r.PaymentReference != "" {
			paid = ", paid by " + r.PaymentReference
		}
		return cli.Print(cmd, "reservation %s: %s, %d of item %d by %s, until %s%s", r.ReservationID, r.State,
			r.Quantity, r.GoodsID, r.Strategy, r.ExpiresAt.UTC().Format(time.RFC3339), paid)
	})
}

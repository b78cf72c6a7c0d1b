package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/pkg/client"
)

// followEvery is the pause between two looks for new orders.
const followEvery = time.Second

func ordersCommand() *cobra.Command {
	var (
		admin          cli.Admin
		pages          client.Pages
		follow, asJSON bool
		asCSV          bool
	)
	cmd := &cobra.Command{
		Use:   "orders",
		Short: "List the orders of the ledger, or give units of one back",
		Long: "List the orders of the ledger, through the admin API, in its order. Each line of --json has a cursor:\n" +
			"--after goes on after the last one that has been dealt with, and misses none.",
		Example: "  stockd orders --token-file admin.token --goods 1\n" +
			"  stockd orders --token-file admin.token --steps --json --follow",
	}
	admin.AddFlags(cmd.PersistentFlags(), configured("STOCKD_ADMIN_LISTEN", "127.0.0.1:8081"))
	flags := cmd.Flags()
	flags.Int64Var(&pages.GoodsID, "goods", 0, "list those of one item")
	flags.BoolVar(&pages.Steps, "steps", false, "list every step of reservations and every return, too")
	flags.StringSliceVar(&pages.Kinds, "kinds", nil, "list these kinds alone, such as restock,limit,strategy,sale; --json shows what was set")
	flags.StringVar(&pages.Reader, "reader", "", "name under which the metrics say how far this reader is behind")
	flags.StringVar(&pages.Cursor, "after", "", "cursor to go on after")
	flags.BoolVar(&follow, "follow", false, "go on as new ones come, until interrupted")
	flags.BoolVar(&asJSON, "json", false, "print a line of JSON for each, with its cursor")
	flags.BoolVar(&asCSV, "csv", false, "print CSV, with a cursor in each line; its head stands where --after is not given")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	cmd.AddCommand(returnCommand(&admin))
	return admin.Command(cmd, func(cmd *cobra.Command, c client.Client, _ []string) error {
		if follow {
			pages.Follow = followEvery
		}
		show := showOrders(cmd.OutOrStdout(), pages.Steps || len(pages.Kinds) > 0)
		if asJSON {
			lines := json.NewEncoder(cmd.OutOrStdout())
			show = func(o client.ListedOrder) error { return lines.Encode(o) }
		}
		if asCSV {
			show = ordersAsCSV(cmd.OutOrStdout(), pages.Cursor == "")
		}
		for order, err := range c.Orders(cmd.Context(), pages) {
			if err != nil && follow && cmd.Context().Err() != nil {
				return nil // it would not end otherwise
			}
			if err != nil {
				return err
			}
			if err := show(order); err != nil {
				return err
			}
		}
		return nil
	})
}

// showOrders prints a table a line at a time, with its head before the first one.
func showOrders(out io.Writer, steps bool) func(client.ListedOrder) error {
	const line = "%-24v  %-7v  %-36v  %5v  %5v  %-20v  %v\n"
	head := false
	return func(o client.ListedOrder) error {
		if !head {
			head = true
			if _, err := fmt.Fprintf(out, line, "at", "step", "order", "goods", "units", "strategy", "buyer"); err != nil {
				return err
			}
		}
		if !steps {
			o.Kind = "order"
		}
		_, err := fmt.Fprintf(out, line, o.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"), o.Kind, o.OrderID, o.GoodsID, o.Quantity, o.Strategy, o.UserID)
		return err
	}
}

// ordersAsCSV prints a row for each order, for accounting.
func ordersAsCSV(out io.Writer, head bool) func(client.ListedOrder) error {
	rows := csv.NewWriter(out)
	return func(o client.ListedOrder) error {
		var err error
		if head {
			head, err = false, rows.Write([]string{"cursor", "created_at", "step", "order_id", "goods_id", "quantity", "user_id", "request_id", "strategy", "reason"})
		}
		row := []string{
			o.Cursor, o.CreatedAt.UTC().Format(time.RFC3339Nano), o.Kind, o.OrderID, strconv.FormatInt(o.GoodsID, 10), strconv.FormatInt(o.Quantity, 10),
			o.UserID, o.RequestID, o.Strategy, o.Reason,
		}
		err = errors.Join(err, rows.Write(row))
		rows.Flush() // a reader that ends has whole rows
		return errors.Join(err, rows.Error())
	}
}

func returnCommand(admin *cli.Admin) *cobra.Command {
	var units int64
	var key string
	var damaged bool
	cmd := &cobra.Command{
		Use:   "return ORDER",
		Short: "Give units of an order back into the stock",
		Example: "  stockd orders return 0198f0c2-… --token-file admin.token            # all that are left of it\n" +
			"  stockd orders return 0198f0c2-… --units 1 --key refund-17 --token-file admin.token",
		Args: oneArg("ORDER"),
	}
	cmd.Flags().Int64Var(&units, "units", 0, "units that come back; 0 is all that are left of the order")
	cmd.Flags().BoolVar(&damaged, "damaged", false, "the units cannot be sold again: they do not come back into the stock")
	cmd.Flags().StringVar(&key, "key", "", "return under this key once, however often it is sent")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if units < 0 {
			return cli.UsageError{Err: errors.New("--units must be at least 0")}
		}
		return nil
	}
	return admin.Command(cmd, func(cmd *cobra.Command, c client.Client, args []string) error {
		give, came := c.Return, "back in stock"
		if damaged {
			give, came = c.ReturnDamaged, "returned, and taken off the stock"
		}
		back, err := give(cmd.Context(), args[0], units, key)
		if err != nil {
			return err
		}
		return cli.Print(cmd, "%s: %d of order %s", came, back, args[0])
	})
}

// oneArg wants one argument, and names it.
func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return cli.UsageError{Err: fmt.Errorf("%s wants one %s", cmd.CommandPath(), name)}
		}
		return nil
	}
}

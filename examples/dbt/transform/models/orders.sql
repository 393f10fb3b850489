select order_id, customer_id, cast(amount_cents as decimal(9, 2)) / 100 as amount
from {{ ref("raw_orders") }}

"""Distribution of schemas: the same schema under the same id, in each cluster's own subjects."""

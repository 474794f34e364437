"""Certificates of servers, read again without a restart."""

"""Constituency trees and their linear form, with the repair of ill-formed linear forms."""

"""The machinery of controllers, in the order data flows: reflector → cache → workqueue → controller; around it leader
election, events, and the manager that starts and stops them. See docs/explanation/dataflow.md."""

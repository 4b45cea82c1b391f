"""The driver `process`: every VM is a program on this host, without a hypervisor (phoenixcloud.txt section 4.3 (7), the
process management service). Its usage is described in docs/how-to/process-driver.md."""

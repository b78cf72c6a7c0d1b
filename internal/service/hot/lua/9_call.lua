return operations[ARGV[1]]()

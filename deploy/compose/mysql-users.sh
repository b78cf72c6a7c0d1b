#!/bin/sh
# Creates the MySQL user that sells: it may read and write rows, call the procedure of
# sql-procedure, and not change the schema. It comes as root through the server's socket, and takes root off the network.
# Running it again renews the password and leaves the rest alone.
set -eu
MYSQL_PWD=$(cat /run/secrets/mysql-root/password)
export MYSQL_PWD
password=$(cat /run/secrets/mysql/password)

# The statements come by standard input: no list of processes has the password.
mysql --user=root --socket=/var/run/mysqld/mysqld.sock <<SQL
DROP USER IF EXISTS 'root'@'%';
CREATE USER IF NOT EXISTS 'stockd'@'%';
ALTER USER 'stockd'@'%' IDENTIFIED BY '$password';
GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON stockd.* TO 'stockd'@'%';
SQL
echo "the user stockd may read and write rows"

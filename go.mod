module mongodlm

go 1.26.8

require go.mongodb.org/mongo-driver/v2 v2.9.3

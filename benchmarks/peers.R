# BEMKL or vbmp on the arrays that `peers.py` wrote to FOLDER; probabilities (object, class) to P.
# Rscript peers.R NAME SOURCE FOLDER OBJECTS FEATURES NEW WIDTH

a <- commandArgs(TRUE)
n <- as.integer(a[4])
d <- as.integer(a[5])
m <- as.integer(a[6])
read <- function(name, ...) array(readBin(file.path(a[3], name), "double", prod(...)), c(...))
y <- read("y", n)
files <- list.files(a[2], "[.]R$", full.names = TRUE, recursive = TRUE)
for (file in grep("demo", files, invert = TRUE, value = TRUE)) source(file)

if (a[1] == "BEMKL") {
  # The settings are those of its demonstration.
  settings <- list(
    alpha_lambda = 1, beta_lambda = 1, alpha_gamma = 1, beta_gamma = 1, alpha_omega = 1,
    beta_omega = 1, iteration = 200, margin = 1, progress = 0, seed = 1606, sigmag = 0.1
  )
  labels <- matrix(2 * y - 1)
  fit <- bemkl_supervised_classification_variational_train(read("K", n, n, 3), labels, settings)
  p <- bemkl_supervised_classification_variational_test(read("K_new", n, m, 3), fit)$p
  P <- cbind(1 - p, p)
} else {
  set.seed(1)
  theta <- rep(as.numeric(a[7]), d)
  P <- vbmp(read("X", n, d), y + 1, read("X_new", m, d), rep(1, m), theta)$Ptest
}
writeBin(c(P), file.path(a[3], "P"))

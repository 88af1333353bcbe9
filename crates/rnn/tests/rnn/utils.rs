//! Helpers: data made ready, derivatives by differences, random numbers, figures, settings, batches.

use ndarray::{arr1, arr2};
use rnn::{
    Array2, Result,
    training::DataLoader,
    utils::{ConfigManager, DataPreprocessing, MathUtils, PerformanceMonitor, RandomUtils},
};

fn close(a: &Array2<f64>, b: &Array2<f64>, near: f64) {
    assert_eq!(a.dim(), b.dim());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < near), "{a} is not {b}");
}

#[test]
fn data_are_scaled() -> Result<()> {
    let x = arr2(&[[1.0, 5.0, 2.0], [3.0, 5.0, -2.0], [2.0, 5.0, 6.0]]);
    let (normal, least, greatest) = DataPreprocessing::min_max_normalize(&x)?;
    close(&normal, &arr2(&[[0.0, 0.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 1.0]]), 1e-15);
    assert_eq!((least.clone(), greatest.clone()), (arr1(&[1.0, 5.0, -2.0]), arr1(&[3.0, 5.0, 6.0])));
    let other = arr2(&[[5.0, 6.0, 0.0]]);
    let scaled = DataPreprocessing::apply_min_max_normalize(&other, &least, &greatest)?;
    close(&scaled, &arr2(&[[2.0, 1.0, 0.25]]), 1e-15);
    let (standard, means, deviations) = DataPreprocessing::standardize(&x)?;
    let deviation = (2.0f64 / 3.0).sqrt();
    assert!((deviations[0] - deviation).abs() < 1e-15 && means[2] == 2.0 && deviations[1] == 0.0);
    assert!((standard[[1, 0]] - 1.0 / deviation).abs() < 1e-15 && standard[[2, 1]] == 0.0);
    assert_eq!(DataPreprocessing::apply_standardize(&x, &means, &deviations)?, standard);
    let few = arr1(&[1.0]);
    assert!(DataPreprocessing::apply_standardize(&x, &means, &few).is_err());
    assert!(DataPreprocessing::apply_min_max_normalize(&x, &few, &greatest).is_err());
    assert!(DataPreprocessing::standardize(&Array2::zeros((0, 3))).is_err());
    assert!(DataPreprocessing::min_max_normalize(&arr2(&[[f64::NAN]])).is_err());
    Ok(())
}

#[test]
fn classes_are_rows_and_back() -> Result<()> {
    let labels = arr1(&[2usize, 0, 1, 2]);
    let rows = DataPreprocessing::to_categorical(&labels, None)?;
    assert_eq!(rows.dim(), (4, 3));
    assert_eq!(rows.row(0).to_vec(), [0.0, 0.0, 1.0]);
    assert_eq!(DataPreprocessing::from_categorical(&rows), labels);
    assert_eq!(DataPreprocessing::to_categorical(&labels, Some(5))?.ncols(), 5);
    assert!(DataPreprocessing::to_categorical(&labels, Some(2)).unwrap_err().to_string().contains("up to 2"));
    assert!(DataPreprocessing::to_categorical(&arr1(&[usize::MAX]), None).is_err());
    let many = DataPreprocessing::to_categorical(&arr1(&[0, 1 << 30]), None).unwrap_err().to_string();
    assert!(many.contains("too long"), "{many}");
    assert_eq!(DataPreprocessing::to_categorical(&arr1(&[]), Some(3))?.dim(), (0, 3));
    Ok(())
}

#[test]
fn rows_stay_with_their_targets() -> Result<()> {
    let x = Array2::from_shape_fn((20, 2), |(i, j)| (i * 2 + j) as f64);
    let y = Array2::from_shape_fn((20, 1), |(i, _)| i as f64);
    let belong = |x: &Array2<f64>, y: &Array2<f64>| {
        assert_eq!(x.nrows(), y.nrows());
        assert!(x.rows().into_iter().zip(y.rows()).all(|(x, y)| x[0] == 2.0 * y[0]));
    };
    let (a, b) = DataPreprocessing::shuffle(&x, &y, Some(3))?;
    belong(&a, &b);
    assert!(b != y && DataPreprocessing::shuffle(&x, &y, Some(3))? == (a, b));
    for shuffle in [false, true] {
        let (train, test, train_y, test_y) =
            DataPreprocessing::train_test_split(&x, &y, 0.25, shuffle, Some(1))?;
        belong(&train, &train_y);
        belong(&test, &test_y);
        assert_eq!((train.nrows(), test.nrows()), (15, 5));
        assert_eq!(test_y[[0, 0]] == 15.0 && test_y[[4, 0]] == 19.0, !shuffle);
    }
    assert!(DataPreprocessing::train_test_split(&x, &y, 1.5, false, None).is_err());
    for (share, left) in [(0.01, "leaves 0"), (0.999, "leaves 20")] {
        let error =
            DataPreprocessing::train_test_split(&x, &y, share, true, Some(1)).unwrap_err().to_string();
        assert!(error.contains(left), "{error}");
    }
    assert_eq!(DataPreprocessing::train_test_split(&x, &y, 0.0, true, Some(1))?.1.nrows(), 0);
    let noisy = DataPreprocessing::add_noise(&x, 0.5, Some(1))?;
    let variance = (&noisy - &x).mapv(|d| d * d).sum() / 40.0;
    assert!((0.1..0.5).contains(&variance), "{variance}");
    for shuffle in [false, true] {
        let mut loader = DataLoader::new(x.clone(), y.clone(), 8, shuffle)?;
        let mut seen = Vec::new();
        for _ in 0..2 {
            assert_eq!((loader.num_batches(), loader.has_next()), (3, true));
            let (mut rows, mut sizes) = (Vec::new(), Vec::new());
            while let Some((x, y)) = loader.next_batch() {
                belong(&x, &y);
                sizes.push(x.nrows());
                rows.extend(y);
            }
            assert_eq!((sizes, loader.has_next()), (vec![8, 8, 4], false));
            seen.push(rows);
            loader.reset();
        }
        assert_eq!(seen[0] == seen[1], !shuffle);
        seen.iter_mut().for_each(|rows| rows.sort_by(f64::total_cmp));
        assert!(seen.iter().all(|rows| rows.iter().eq(y.iter())));
    }
    assert!(DataLoader::new(x.clone(), y.clone(), 0, false).is_err());
    assert!(DataLoader::new(x, Array2::zeros((3, 1)), 4, false).is_err());
    Ok(())
}

#[test]
fn derivatives_by_differences() -> Result<()> {
    let f = |x: &Array2<f64>| Ok(x[[0, 0]].powi(2) * x[[0, 1]] + 3.0 * x[[1, 0]] * x[[1, 1]]);
    let x = arr2(&[[1.5, -0.5], [2.0, 0.3]]);
    close(&MathUtils::numerical_gradient(f, &x, 1e-5)?, &arr2(&[[-1.5, 2.25], [0.9, 6.0]]), 1e-8);
    let expected =
        arr2(&[[-1.0, 3.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0], [0.0, 0.0, 3.0, 0.0]]);
    close(&MathUtils::numerical_hessian(f, &x, 1e-4)?, &expected, 1e-6);
    assert!(MathUtils::numerical_gradient(f, &x, 0.0).is_err());
    assert!(MathUtils::numerical_hessian(f, &x, f64::NAN).is_err());
    // More pairs than any machine has addresses for.
    let many = Array2::zeros((1, 5_000_000));
    assert!(MathUtils::numerical_hessian(f, &many, 1e-4).unwrap_err().to_string().contains("no room"));
    Ok(())
}

#[test]
fn functions_of_matrices() {
    let x = arr2(&[[4.0, -1.0], [f64::NAN, 0.25]]);
    assert!(MathUtils::has_nan_or_inf(&x));
    let x = MathUtils::replace_nan_inf(&x, 9.0);
    assert_eq!(x, arr2(&[[4.0, -1.0], [9.0, 0.25]]));
    assert_eq!(MathUtils::clip(&x, 0.0, 5.0), arr2(&[[4.0, 0.0], [5.0, 0.25]]));
    assert_eq!(MathUtils::abs(&x)[[0, 1]], 1.0);
    assert_eq!(MathUtils::square(&x)[[1, 0]], 81.0);
    assert_eq!(MathUtils::sqrt(&x)[[1, 1]], 0.5);
    assert_eq!(MathUtils::log(&MathUtils::exp(&x))[[0, 0]], 4.0);
    assert_eq!(MathUtils::l2_norm(&arr2(&[[3.0, 4.0]])), 5.0);
    assert_eq!(MathUtils::frobenius_norm(&arr2(&[[3.0], [4.0]])), 5.0);
    let quotient = MathUtils::safe_divide(&arr2(&[[1.0, 1.0, 6.0]]), &arr2(&[[0.0, -1e-9, 3.0]]), 1e-3);
    assert_eq!(quotient, arr2(&[[1e3, -1e3, 2.0]]));
    assert!(MathUtils::safe_divide(&arr2(&[[1.0, 2.0]]), &arr2(&[[1.0]]), 1e-3)[[0, 1]].is_nan());
}

#[test]
fn random_numbers_follow_from_seeds() -> Result<()> {
    let uniform = RandomUtils::uniform_random((50, 40), -2.0, 3.0, Some(1))?;
    assert!(uniform.iter().all(|x| (-2.0..3.0).contains(x)));
    assert!((uniform.mean().unwrap() - 0.5).abs() < 0.1);
    assert_eq!(uniform, RandomUtils::uniform_random((50, 40), -2.0, 3.0, Some(1))?);
    let normal = RandomUtils::normal_random((50, 40), 1.0, 2.0, Some(1))?;
    assert!((normal.mean().unwrap() - 1.0).abs() < 0.2 && (normal.std(0.0) - 2.0).abs() < 0.2);
    let mut some = RandomUtils::random_indices(30, 10, Some(2))?;
    some.sort_unstable();
    some.dedup();
    assert!(some.len() == 10 && some.iter().all(|i| *i < 30));
    assert_ne!(RandomUtils::permutation(30, Some(1)), RandomUtils::permutation(30, Some(2)));
    assert!(RandomUtils::random_indices(3, 4, None).is_err());
    let mut all = RandomUtils::random_indices(5, 5, Some(2))?;
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    let far = RandomUtils::random_indices(usize::MAX, 3, Some(2))?;
    assert!(far.len() == 3 && far.iter().all(|i| *i > 1000), "{far:?}");
    assert!(RandomUtils::random_indices(usize::MAX, usize::MAX, None).is_err());
    assert!(RandomUtils::uniform_random((1, 1), 2.0, 1.0, None).is_err());
    assert!(RandomUtils::uniform_random((1, 1), f64::MIN, f64::MAX, None).is_err());
    assert!(RandomUtils::uniform_random((usize::MAX, 2), 0.0, 1.0, None).is_err());
    assert!(RandomUtils::normal_random((1, 1), 0.0, -1.0, None).is_err());
    assert!(RandomUtils::normal_random((1, 1), f64::NAN, 1.0, None).is_err());
    Ok(())
}

#[test]
fn figures_and_settings() -> Result<()> {
    let mut monitor = PerformanceMonitor::new();
    for bytes in [100, 300] {
        let start = monitor.start_timer("part");
        std::thread::sleep(std::time::Duration::from_millis(2));
        monitor.end_timer("part", start);
        monitor.record_memory("part", bytes);
    }
    let total = monitor.total_time("part").unwrap();
    assert!(total >= 0.004 && monitor.average_time("part") == Some(total / 2.0));
    assert_eq!((monitor.average_memory("part"), monitor.peak_memory("part")), (Some(200.0), Some(300)));
    assert_eq!(
        (monitor.count("part"), monitor.count("other"), monitor.average_time("other")),
        (Some(2), None, None)
    );
    monitor.print_summary();
    monitor.reset();
    assert_eq!(monitor, PerformanceMonitor::default());

    let mut settings = ConfigManager::new();
    settings.set("rate", 0.25)?;
    settings.set("names", ["a", "b"])?;
    assert_eq!((settings.get("rate")?, settings.get::<f64>("other")?), (Some(0.25), None));
    assert!(settings.get::<f64>("names").is_err());
    let mut odd = ConfigManager::new();
    odd.set("rate", f64::NAN)?;
    assert!(odd.settings["rate"].is_null());
    assert_eq!(settings.get_or_default("names", 7), 7);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    settings.save_to_file(&path)?;
    let mut read = ConfigManager::new();
    read.set("kept", true)?;
    read.load_from_file(&path)?;
    assert!(read.contains_key("kept") && read.keys().len() == 3);
    assert_eq!(read.remove("kept"), Some(true.into()));
    assert_eq!(read, settings);
    read.clear();
    assert!(read.keys().is_empty());
    std::fs::write(&path, "[1]").unwrap();
    assert!(read.load_from_file(&path).unwrap_err().to_string().contains("settings.json"));
    assert!(read.load_from_file(folder.path().join("none")).is_err());
    Ok(())
}

import multimirror.batch


def test_the_rules_of_the_job_api_can_be_imported_without_anything_else() -> None:
    assert multimirror.batch.__doc__
